"""The optimizers that `--optimizer` names."""

from typing import Any, List, Tuple

from console.tensorflow_versions import tf
from inception_v3 import replicas
from inception_v3.config import Config
from inception_v3.weights.selection import is_head

MOMENTUM = 0.9
RMSPROP_DECAY = 0.9
RMSPROP_MOMENTUM = 0.9
# Inside the root, as TensorFlow has it: g / sqrt(mean square + epsilon). Szegedy et al., section 8.
RMSPROP_EPSILON = 1.0


def make_optimizer(learning_rate: Any, config: Config) -> tf.train.Optimizer:
    """Makes the optimizer of a run; on a TPU, CrossShardOptimizer averages the gradients over the cores.

    The learning rate is a float or a scalar tensor; the classifiers may have their own.
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


class TwoRates(tf.train.Optimizer):
    """Two optimizers of the same kind: one for the classifiers of the network, one for its other layers."""

    def __init__(self, body: tf.train.Optimizer, head: tf.train.Optimizer):
        super().__init__(use_locking=False, name='TwoRates')
        self._body = body
        self._head = head

    def compute_gradients(self, *arguments: Any, **options: Any) -> List[Tuple[tf.Tensor, tf.Variable]]:
        """As `tf.train.Optimizer.compute_gradients`."""
        return self._body.compute_gradients(*arguments, **options)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> tf.Operation:
        """As `tf.train.Optimizer.apply_gradients`."""
        pairs = [*grads_and_vars]
        updates = []
        for optimizer, of_head in ((self._body, False), (self._head, True)):
            own = [pair for pair in pairs if is_head(pair[1]) == of_head]
            # An optimizer refuses variables none of which has a gradient; all others may be frozen.
            if any(gradient is not None for gradient, _ in own):
                updates.append(optimizer.apply_gradients(own))
        if global_step is None:
            return tf.group(*updates, name=name)
        with tf.control_dependencies(updates):
            return replicas.add_one(global_step, name)
