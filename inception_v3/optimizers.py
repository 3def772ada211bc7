"""The optimizers that `--optimizer` names."""

from typing import Any

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.weights.two_rates import TwoRates

MOMENTUM = 0.9
RMSPROP_DECAY = 0.9
RMSPROP_MOMENTUM = 0.9
# Inside the root, as TensorFlow has it: g / sqrt(mean square + epsilon). Szegedy et al., section 8.
RMSPROP_EPSILON = 1.0


def make_optimizer(learning_rate: Any, config: Config) -> tf.train.Optimizer:
    """Makes the optimizer of a run; on a TPU, CrossShardOptimizer averages the gradients over the cores.

    Args:
      learning_rate: a float or a scalar tensor.
      config: names the optimizer, and the learning rate of the classifiers if they have their own.
    """
    if config.head_learning_rate is None:
        return _with_rate(learning_rate, config)
    # All factors of the schedule are the same for both.
    head_rate = learning_rate * (config.head_learning_rate / config.learning_rate)
    return TwoRates(_with_rate(learning_rate, config), _with_rate(head_rate, config))


def _with_rate(learning_rate: Any, config: Config) -> tf.train.Optimizer:
    optimizer = {
        'sgd': lambda: tf.train.GradientDescentOptimizer(learning_rate),
        'momentum': lambda: tf.train.MomentumOptimizer(learning_rate, MOMENTUM),
        'RMS': lambda: tf.train.RMSPropOptimizer(learning_rate, RMSPROP_DECAY, RMSPROP_MOMENTUM, RMSPROP_EPSILON),
    }[config.optimizer]()
    # Only on a TPU: the all-reduce has no kernel for other devices.
    return tf.tpu.CrossShardOptimizer(optimizer) if config.use_tpu else optimizer
