"""Operations between the replicas of a step: copies of the network on several devices, by `tf.distribute`.

The functions are for a model function, which `tf.distribute` calls once for each replica, each time on a thread of its
own. With one replica, or on a TPU, whose cores have operations of their own, they are the plain operations.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from compat.names import record_operation, stop_recording  # isort: skip  Before TensorFlow is loaded.
from compat import tf  # isort: skip
from tensorflow.python.distribute import numpy_dataset
from tensorflow.python.framework import ops

# Variables whose copies differ between replicas. Checkpoints have the first copy.
FIRST_IS_KEPT = {
    'synchronization': tf.VariableSynchronization.ON_READ,
    'aggregation': tf.VariableAggregation.ONLY_FIRST_REPLICA,
}
# Variables to which every replica adds. Their value is the sum.
SUMMED = {'synchronization': tf.VariableSynchronization.ON_READ, 'aggregation': tf.VariableAggregation.SUM}
# Variables to which all replicas assign the same value.
SAME = {'aggregation': tf.VariableAggregation.ONLY_FIRST_REPLICA}


def are_several() -> bool:
    """Whether the current graph is built for several replicas."""
    return tf.distribute.get_strategy().num_replicas_in_sync > 1


def number() -> Any:
    """The number of the current replica among all, from 0; an int32 scalar, or 0 without replicas."""
    if not are_several():
        return 0
    # With several machines, the number of the first replica on this machine.
    first = getattr(tf.distribute.get_strategy().extended, 'first_replica', 0)
    return first + tf.distribute.get_replica_context().replica_id_in_sync_group


def _reduced(reduction: tf.distribute.ReduceOp, tensor: tf.Tensor) -> tf.Tensor:
    """The sum or mean of a tensor over the replicas, on each of them. It has no gradient.

    The gradient of `all_reduce` searches for the variables that the sum depends on, and fails in 1.15, where the graph
    has the variables of all replicas.
    """

    def merge(strategy: tf.distribute.Strategy, value: Any) -> Any:
        return strategy.extended.batch_reduce_to(reduction, [(value, value)])[0]

    return tf.distribute.get_replica_context().merge_call(merge, args=(tensor,))


def mean(tensor: tf.Tensor) -> tf.Tensor:
    """The mean of a tensor over the replicas."""
    return _reduced(tf.distribute.ReduceOp.MEAN, tensor) if are_several() else tensor


def all_true(condition: tf.Tensor) -> tf.Tensor:
    """Whether a condition, a boolean scalar, holds on every replica."""
    if not are_several():
        return condition
    return tf.equal(_reduced(tf.distribute.ReduceOp.SUM, tf.cast(~condition, tf.float32)), 0)


def sums(groups: Sequence[Sequence[int]], tensor: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The sums of a tensor over the current replica's group of replicas, and over the first group.

    `tf.distribute` can only add over all replicas. In that sum, each group has its own element, to which all other
    replicas add zeros, so that its bits equal those of a sum over the group.
    """
    if len(groups) == 1:
        total = _reduced(tf.distribute.ReduceOp.SUM, tensor)
        return total, total
    group_of = {replica: place for place, group in enumerate(groups) for replica in group}
    own = tf.gather([group_of[replica] for replica in range(len(group_of))], number())
    placed = tf.scatter_nd([[own]], tensor[tf.newaxis], [len(groups), *tensor.shape.as_list()])
    totals = _reduced(tf.distribute.ReduceOp.SUM, placed)
    return totals[own], totals[0]


def custom_gradient(
    function: Callable[..., Any], variables: Optional[Dict[str, tf.Variable]] = None
) -> Callable[..., Any]:
    """As `tf.custom_gradient`, for a function of tensors that may contain sums over the replicas.

    The function returns a tuple of results, and a gradient function, which maps the gradients of the results to those
    of the arguments. `tf.custom_gradient` searches the graph for the variables that the results depend on, and fails:
    see `_reduced`. Here, they are the trainable ones of `variables`, to which the function may add while it runs. As in
    TensorFlow, the gradient function receives them as `variables`, if there are any, and then returns their gradients,
    too.
    """
    if not are_several():
        return tf.custom_gradient(function)

    def decorated(*arguments: tf.Tensor) -> Any:
        results, gradient = function(*(tf.identity(each) for each in arguments))
        name = f'GradientOfReplica{ops.uid()}'
        own = [variable for variable in (variables or {}).values() if variable.trainable]
        inputs = [*arguments, *(tf.convert_to_tensor(variable) for variable in own)]

        def of_inputs(*gradients: tf.Tensor) -> List[Any]:
            if not own:
                return [*gradient(*gradients)]
            of_arguments, of_variables = gradient(*gradients, variables=own)
            return [*of_arguments, *of_variables]

        @ops.RegisterGradient(name)
        def of_all(operation: tf.Operation, *gradients: tf.Tensor) -> List[Any]:
            return [*([None] * len(results)), *of_inputs(*gradients[: len(results)])]

        # A tape ignores the override, and treats sums over the replicas in the function as constants.
        with stop_recording(), tf.get_default_graph().gradient_override_map({'IdentityN': name}):
            outputs = tf.identity_n([*results, *inputs])[: len(results)]
        record_operation(name, outputs, inputs, of_inputs)
        return tuple(outputs)

    return decorated


def merged(function: Callable[..., Any], *values: Any) -> Any:
    """Calls a function once for all replicas, with the first replica's values, and returns its result."""
    if not are_several():
        return function(*values)

    def merge(strategy: tf.distribute.Strategy, *values: Any) -> Any:
        return function(*(strategy.experimental_local_results(value)[0] for value in values))

    return tf.distribute.get_replica_context().merge_call(merge, args=values)


def add_one(step: tf.Variable, name: Optional[str] = None) -> tf.Operation:
    """Adds 1 to a variable on all replicas."""
    if not are_several():
        return tf.assign_add(step, 1, name=name).op
    extended = tf.distribute.get_strategy().extended
    return merged(lambda: extended.update(step, lambda copy: tf.assign_add(copy, 1)))


def apply_gradients_if(condition: tf.Tensor, optimizer: tf.train.Optimizer, pairs: Sequence[Any]) -> tf.Operation:
    """Applies pairs of gradients and variables if a condition holds, which must be the same on every replica."""
    if not are_several():
        return tf.cond(condition, lambda: optimizer.apply_gradients(pairs), tf.no_op)

    def merge(strategy: tf.distribute.Strategy, condition: Any, pairs: Any) -> tf.Operation:
        # An optimizer is called on each replica, and merges the replicas itself.
        def apply() -> tf.Operation:
            return strategy.group(strategy.extended.call_for_each_replica(optimizer.apply_gradients, args=(pairs,)))

        return tf.cond(strategy.experimental_local_results(condition)[0], apply, tf.no_op)

    return tf.distribute.get_replica_context().merge_call(merge, args=(condition, pairs))


def total_of(variable: tf.Variable) -> tf.Tensor:
    """The value of a variable that is `SUMMED`."""
    if not are_several():
        return variable.read_value()
    return tf.distribute.get_replica_context().merge_call(lambda strategy: strategy.extended.read_var(variable))


def copies(variable: tf.Variable) -> List[tf.Variable]:
    """The copies of a variable on the replicas of this process, for hooks; the first is the one that is saved."""
    return [*tf.distribute.get_strategy().experimental_local_results(variable)]


@contextlib.contextmanager
def on_first() -> Iterator[None]:
    """Context manager in which new variables and operations belong only to the first replica of this process."""
    if not are_several():
        yield
        return
    device = tf.distribute.get_strategy().extended.worker_devices[0]

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        return next_creator(**{**options, 'colocate_with': numpy_dataset.SingleDevice(device)})

    with tf.variable_creator_scope(create), tf.device(device):
        yield


def initializer() -> tf.Operation:
    """Initializes all copies of all variables.

    TensorFlow's own initializer adds a group for each variable and device.
    """
    return tf.group(*(copy.initializer for variable in tf.global_variables() for copy in copies(variable)))


class Saver(tf.train.Saver):
    """Saves the first copies of variables; restores them, and then gives their values to the other copies.

    TensorFlow's own saver restores each copy from the checkpoint, with four times as many operations.

    Args:
      variables: the variables by their names in a checkpoint. None: all of the graph's, with the settings of
        Estimator's own saver.
    """

    def __init__(self, variables: Optional[Dict[str, tf.Variable]] = None):
        super().__init__(sharded=variables is None, defer_build=True, save_relative_paths=variables is None)
        self._given = variables
        # By their names in a checkpoint, once the operations are built.
        self._first_copies: Dict[str, tf.Variable] = {}
        self._spread: Optional[List[tf.Operation]] = None

    def build(self) -> None:
        """Adds the operations to the graph, once it is complete; later calls do nothing."""
        if self.is_built:
            return
        if self._given is None:
            all_copies = [copies(variable) for variable in tf.global_variables()]
            names = [first.op.name for first, *_ in all_copies]
        else:
            all_copies, names = [copies(variable) for variable in self._given.values()], [*self._given]
        self._first_copies = {name: first for name, (first, *_) in zip(names, all_copies)}
        self._var_list = self._first_copies
        super().build()
        self._spread = []
        for first, *others in all_copies:
            # A copy on another device reads the value of the first one.
            value = first.read_value() if others else None
            self._spread += [other.assign(value, read_value=False) for other in others]

    @property
    def is_built(self) -> bool:
        """Whether the operations are in the graph."""
        return self._spread is not None

    def restore(self, sess: tf.Session, save_path: str) -> None:
        """Restores a checkpoint."""
        super().restore(sess, save_path)
        self.spread(sess)

    def spread(self, sess: tf.Session) -> None:
        """Gives the values of the first copies to the others."""
        if self._spread:
            sess.run(self._spread)
