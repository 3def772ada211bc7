"""An optimizer with a learning rate of its own for the classifiers of a network."""

from typing import Any, List, Tuple

from console.tensorflow_versions import tf
from inception_v3.weights.selection import is_head


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
            return tf.assign_add(global_step, 1, name=name).op
