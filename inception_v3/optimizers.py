"""The optimizers that `--optimizer` names."""

from typing import Any

from compat import tf
from inception_v3.config import Config

MOMENTUM = 0.9
RMSPROP_DECAY = 0.9
RMSPROP_MOMENTUM = 0.9
# Inside the root, as TensorFlow has it: g / sqrt(mean square + epsilon). Szegedy et al., section 8.
RMSPROP_EPSILON = 1.0


def make_optimizer(learning_rate: Any, config: Config) -> tf.train.Optimizer:
    """Makes the optimizer of a run; on a TPU, CrossShardOptimizer averages the gradients over the cores.

    The learning rate is a float or a scalar tensor.
    """
    optimizer = {
        'sgd': lambda: tf.train.GradientDescentOptimizer(learning_rate),
        'momentum': lambda: tf.train.MomentumOptimizer(learning_rate, MOMENTUM),
        'RMS': lambda: tf.train.RMSPropOptimizer(learning_rate, RMSPROP_DECAY, RMSPROP_MOMENTUM, RMSPROP_EPSILON),
    }[config.optimizer]()
    # Only on a TPU: the all-reduce has no kernel for other devices.
    return tf.tpu.CrossShardOptimizer(optimizer) if config.use_tpu else optimizer
