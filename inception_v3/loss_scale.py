"""Dynamic loss scaling, for `--precision=float16`: it keeps small gradients from becoming 0.

Micikevicius et al., "Mixed Precision Training", section 3.2. The loss is multiplied by a power of 2 before
backpropagation, and the gradients are divided by it, which is exact. If a gradient overflows, the step leaves weights
and optimizer as they are, and the scale is halved; after `GROWTH_STEPS` steps without an overflow it is doubled.

TensorFlow's `MixedPrecisionLossScaleOptimizer` does not count a skipped step as a step. Here it counts: its batch is
used, and the learning rate advances, so that the step still determines the position in the data. The number of skipped
steps is recorded. Checkpoints contain the state, but one of another precision, without the state, can also be restored.
"""

from typing import Any, NamedTuple, Optional

from compat import tf
from inception_v3 import replicas

FIRST_SCALE = 2.0**15
GREATEST_SCALE = 2.0**24
# Steps without an overflow after which the scale is doubled.
GROWTH_STEPS = 2000

# The collection of the variables of the state, which a checkpoint may lack.
VARIABLES = 'loss_scale_variables'


class State(NamedTuple):
    """The factor on the next loss, the steps since its last change, and all steps whose gradients overflowed."""

    scale: Any
    steady_steps: Any
    skipped_steps: Any


def state() -> Optional[State]:
    """The variables of the current graph's loss scaling; None if it has none."""
    variables = tf.get_collection(VARIABLES)
    return State(*variables) if variables else None


def minimize(
    optimizer: tf.train.Optimizer, loss: tf.Tensor, global_step: tf.Variable, aggregation_method: int
) -> tf.Operation:
    """Like `optimizer.minimize`, with the loss scaled; a step whose gradients overflow changes no weight.

    At a scale of 1 every step is applied: a smaller scale would not help, and the check of the weights ends the run.
    """
    held = _make_state()
    scale, steady = tf.identity(held.scale), tf.identity(held.steady_steps)
    pairs = optimizer.compute_gradients(loss * scale, aggregation_method=aggregation_method)
    pairs = [(gradient / scale, variable) for gradient, variable in pairs if gradient is not None]
    is_finite = tf.reduce_all(tf.stack([tf.reduce_all(tf.is_finite(gradient)) for gradient, _ in pairs]))
    is_finite = replicas.all_true(is_finite)
    is_applied = is_finite | (scale <= 1)
    applied = replicas.apply_gradients_if(is_applied, optimizer, pairs)
    is_grown = steady + 1 >= GROWTH_STEPS
    raised = tf.where(is_grown, tf.minimum(scale * 2, GREATEST_SCALE), scale)
    updates = [
        tf.assign(held.scale, tf.where(is_finite, raised, tf.maximum(scale / 2, 1.0))),
        tf.assign(held.steady_steps, tf.where(is_finite & ~is_grown, steady + 1, tf.zeros_like(steady))),
        tf.assign_add(held.skipped_steps, tf.cast(~is_applied, tf.int64)),
    ]
    with tf.control_dependencies([applied, *updates]):
        return replicas.add_one(global_step)


def _make_state() -> State:
    """Creates the variables: int64 counts, because GPUs have no int32 variables."""

    def variable(name: str, first: float, dtype: tf.DType) -> tf.Variable:
        collections = [tf.GraphKeys.GLOBAL_VARIABLES, VARIABLES]
        first_value = tf.constant_initializer(first)
        return tf.get_variable(name, [], dtype, first_value, trainable=False, collections=collections, **replicas.SAME)

    # Reads and writes of resource variables have a defined order.
    with tf.variable_scope('loss_scale', use_resource=True):
        return State(
            variable('scale', FIRST_SCALE, tf.float32),
            variable('steady_steps', 0, tf.int64),
            variable('skipped_steps', 0, tf.int64),
        )


class Saver(replicas.Saver):
    """Saves all variables; also restores checkpoints without the state of loss scaling, which is then reset."""

    def build(self) -> None:
        """Adds the operations to the graph, once it is complete; later calls do nothing."""
        if self.is_built:
            return
        super().build()
        own = {variable.op.name for variable in tf.get_collection(VARIABLES)}
        self._names = sorted(own)
        rest = {name: variable for name, variable in self._first_copies.items() if name not in own}
        self._rest = tf.train.Saver(rest, sharded=True)
        self._start = tf.group(*(variable.initializer for variable in tf.get_collection(VARIABLES)))

    def restore(self, sess: tf.Session, save_path: str) -> None:
        """Restores a checkpoint."""
        reader = tf.train.load_checkpoint(save_path)
        if all(reader.has_tensor(name) for name in self._names):
            super().restore(sess, save_path)
            return
        self._rest.restore(sess, save_path)
        sess.run(self._start)
        self.spread(sess)
