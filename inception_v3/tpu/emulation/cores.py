"""The emulated TPU itself: what TPUEstimator hands to a TPU, built for virtual devices of the CPU instead.

TPUEstimator builds one training or evaluation step inside a loop, for TensorFlow to replicate over the cores. Here the
body of that loop is built once for each core, on a device of the core's own, and all cores go around the loop
together. A sum over the cores is an identity at first, with the gradient of such a sum; when the last core is built,
the sum of what the cores put into their identities takes their place.
"""

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple
from unittest import mock

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import ops, tensor_util
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu, tpu_feed, tpu_function, training_loop
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from inception_v3.tpu.emulation.system import TPU_JOB
from inception_v3.tpu.topology import Topology

# Batches that a core's infeed holds, and results that its outfeed holds.
_QUEUE_CAPACITY = 2

_REPLICATED_CORE = 'TPU_REPLICATED_CORE'

# The operation that stands for a CrossReplicaSum, which no CPU has: of the same inputs, a tensor and the groups.
_STAND_IN = 'IdentityN'
_STAND_IN_GRADIENT = 'EmulatedCrossReplicaSum'


@ops.RegisterGradient(_STAND_IN_GRADIENT)
def _cross_replica_sum_gradient(
    operation: tf.Operation, gradient: tf.Tensor, unused: Optional[tf.Tensor]
) -> List[Optional[tf.Tensor]]:
    return [gen_tpu_ops.cross_replica_sum(gradient, operation.inputs[1]), None]


class EmulatedCores:
    """A TPU of `topology.cores` cores; the virtual devices of its hosts come first, those of its cores follow.

    Args:
      topology: the cores and the hosts.
    """

    def __init__(self, topology: Topology):
        self._topology = topology
        self._core: Optional[int] = None
        self._sums: List[List[tf.Operation]] = []
        self._queues: Dict[Tuple[ops.Graph, str, int], tf.queue.FIFOQueue] = {}

    def device_of(self, operation: tf.Operation) -> str:
        """The virtual device for what was placed on a host or a core of the TPU: the function for `tf.device`."""
        spec = tf.compat.v1.DeviceSpec.from_string(operation.device)
        if spec.device_type == _REPLICATED_CORE or (spec.job == TPU_JOB and spec.device_type == 'TPU'):
            return self._core_device(self._core or 0)
        if spec.job == TPU_JOB:
            return f'/device:CPU:{spec.task or 0}'
        return operation.device

    def _core_device(self, core: int) -> str:
        return f'/device:CPU:{self._topology.hosts + core}'

    @contextlib.contextmanager
    def in_place_of_a_tpu(self) -> Iterator[None]:
        """While it is open, TPUEstimator builds for these cores."""
        capture = tpu_estimator._CapturedObject.capture
        record = tpu_estimator._OutfeedHostCall.record
        generate_dequeue_op = tpu_feed.InfeedQueue.generate_dequeue_op

        def capture_of_the_first_core(captured: Any, value: Any) -> None:
            # TPUEstimator keeps a Python object of the step that it builds, and expects to build one.
            if not self._core:
                capture(captured, value)

        def record_anew(host_call: Any, calls: Any) -> None:
            # Each core sends its own tensors, by a call of the same form.
            host_call._names.clear()
            for recorded in ('_tensor_keys', '_tensors', '_tensor_dtypes', '_tensor_shapes'):
                getattr(host_call, recorded).clear()
            record(host_call, calls)

        def generate_another_dequeue_op(queue: Any, tpu_device: int = 0) -> List[tf.Tensor]:
            queue._generated_dequeue_op = False
            return generate_dequeue_op(queue, tpu_device)

        replacements: List[Tuple[Any, str, Any]] = [
            (tpu_estimator, '_CROSS_REPLICA_SUM_OP', _STAND_IN),
            (tpu, 'initialize_system', lambda **unused: tf.constant(b'')),
            (tpu, 'shutdown_system', lambda **unused: tf.no_op()),
            (tpu, 'split_compile_and_shard', self._shard),
            (training_loop, 'while_loop', self._while_loop),
            (gen_tpu_ops, 'cross_replica_sum', self._cross_replica_sum),
            (gen_xla_ops, 'xla_replica_id', self._replica_id),
            (tpu_ops, 'infeed_enqueue_tuple', self._infeed_enqueue),
            (tpu_ops, 'infeed_dequeue_tuple', self._infeed_dequeue),
            (tpu_ops, 'outfeed_enqueue_tuple', self._outfeed_enqueue),
            (tpu_ops, 'outfeed_dequeue_tuple', self._outfeed_dequeue),
            (tpu_feed.InfeedQueue, 'generate_dequeue_op', generate_another_dequeue_op),
            (tpu_estimator._CapturedObject, 'capture', capture_of_the_first_core),
            (tpu_estimator._OutfeedHostCall, 'record', record_anew),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in replacements:
                stack.enter_context(mock.patch.object(owner, name, replacement))
            yield

    # Infeed and outfeed: a queue for each core in both directions.

    def _queue(self, kind: str, core: int, dtypes: Sequence[tf.DType], shapes: Sequence[Any]) -> tf.queue.FIFOQueue:
        key = (tf.compat.v1.get_default_graph(), kind, core)
        if key not in self._queues:
            with tf.init_scope(), tf.device(self._core_device(core)):
                self._queues[key] = tf.queue.FIFOQueue(_QUEUE_CAPACITY, dtypes, shapes, name=f'{kind}_of_core_{core}')
        return self._queues[key]

    def _core_at(self, ordinal: int) -> int:
        """The core that a host's operation means: the `ordinal`-th of the host on whose device it is built."""
        with tf.control_dependencies(None):
            device = tf.compat.v1.DeviceSpec.from_string(tf.no_op().device)
        return device.device_index * self._topology.cores_per_host + ordinal

    def _infeed_enqueue(
        self,
        inputs: Sequence[tf.Tensor],
        shapes: Sequence[Any],
        name: Optional[str] = None,
        device_ordinal: int = -1,
    ) -> tf.Operation:
        queue = self._queue('infeed', self._core_at(device_ordinal), [x.dtype for x in inputs], shapes)
        return queue.enqueue(inputs, name)

    def _infeed_dequeue(self, dtypes: Any, shapes: Any, name: Optional[str] = None) -> List[tf.Tensor]:
        assert self._core is not None, 'infeed is for the cores'
        return _as_list(self._queue('infeed', self._core, dtypes, shapes).dequeue(name))

    def _outfeed_enqueue(self, inputs: Sequence[tf.Tensor]) -> tf.Operation:
        assert self._core is not None, 'outfeed is from the cores'
        queue = self._queue('outfeed', self._core, [x.dtype for x in inputs], [x.shape for x in inputs])
        return queue.enqueue(inputs)

    def _outfeed_dequeue(self, dtypes: Any, shapes: Any, device_ordinal: int = -1) -> List[tf.Tensor]:
        return _as_list(self._queue('outfeed', self._core_at(device_ordinal), dtypes, shapes).dequeue())

    # The computation: its loop is where it is replicated.

    def _shard(self, computation: Callable, inputs: Any, num_shards: int, **unused: Any) -> Tuple[tf.Tensor, List[Any]]:
        """In place of `tpu.split_compile_and_shard`: (what compiling gave, the outputs of the first core)."""
        assert num_shards == self._topology.cores, (num_shards, self._topology)
        return tf.constant(b''), _as_list(computation(*(values[0] for values in inputs)))

    def _while_loop(self, condition: Callable, body: Callable, inputs: Sequence[Any], **unused: Any) -> List[tf.Tensor]:
        """In place of `training_loop.while_loop`: a loop that all cores go around together."""
        start = tf.no_op('start_of_loop')
        with tf.control_dependencies([start]):
            inputs = [tf.identity(x) for x in inputs]

        def body_of_all_cores(*loop_variables: tf.Tensor) -> List[tf.Tensor]:
            outputs = self._replicate(lambda core: _as_list(body(*loop_variables)), start)
            with tf.control_dependencies([x for output in outputs for x in output]):
                return [tf.identity(x) for x in outputs[0]]

        return _as_list(tf.while_loop(condition, body_of_all_cores, inputs, parallel_iterations=1))

    def replicate(self, computation: Callable[[int], Any]) -> List[Any]:
        """Builds a computation for every core, without a loop; needs `in_place_of_a_tpu`.

        Args:
          computation: builds what a core does, from the number of the core.

        Returns:
          What `computation` returned for each core. Whenever they are run, all cores begin with the first core's
          variables, which alone outlive the run.
        """
        start = tf.no_op('start')
        with tf.control_dependencies([start]):
            return self._replicate(computation, start)

    def _replicate(self, computation: Callable[[int], Any], start: tf.Operation) -> List[Any]:
        variables = _VariablesOfCores(tf.compat.v1.get_default_graph(), start)
        self._sums = [[] for _ in range(self._topology.cores)]
        outputs = []
        with tpu_function.tpu_shard_context(self._topology.cores):
            for core in range(self._topology.cores):
                with self._building(core), variables.of(core):
                    # The copies are of what takes the place of a sum, if that is what is returned.
                    outputs.append(tf.nest.map_structure(tf.identity, computation(core)))
        for peers in zip(*self._sums):
            self._sum(peers)
        return outputs

    @contextlib.contextmanager
    def _building(self, core: int) -> Iterator[None]:
        """While it is open, what is built is the core's."""
        self._core = core
        try:
            with tf.name_scope(f'core_{core}'), tf.device(self._core_device(core)):
                yield
        finally:
            self._core = None

    def _replica_id(self) -> tf.Tensor:
        assert self._core is not None, 'only cores have a number'
        return tf.constant(self._core)

    # Sums over the cores.

    def _cross_replica_sum(self, x: tf.Tensor, group_assignment: Any, name: Optional[str] = None) -> tf.Tensor:
        assert self._core is not None, 'only cores sum'
        with tf.compat.v1.get_default_graph().gradient_override_map({_STAND_IN: _STAND_IN_GRADIENT}):
            summed, _ = tf.identity_n([x, group_assignment], name or 'CrossReplicaSum')
        self._sums[self._core].append(summed.op)
        return summed

    def _sum(self, peers: Sequence[tf.Operation]) -> None:
        """Puts the sum over each group of cores in place of what stands for it on each core."""
        groups = tensor_util.constant_value(peers[0].inputs[1]).tolist()
        for group in groups:
            terms = [peers[core].inputs[0] for core in group]
            with tf.device(terms[0].device):
                # One after the other: add_n begins with whichever term it may overwrite, and the last bits vary.
                total = tf.identity(functools.reduce(tf.add, terms))
            for core in group:
                _replace(peers[core], total)


class _VariablesOfCores:
    """Variables for each core, of which only the first core's are the graph's own, and outlive a loop.

    Args:
      graph: where they are.
      start: an operation that runs before each loop; it is made to wait until the others hold what the first's do.
    """

    def __init__(self, graph: tf.Graph, start: tf.Operation):
        self._graph = graph
        self._start = start
        self._before = self._collections()
        self._first: List[tf.Variable] = []

    def _collections(self) -> Dict[Any, List[Any]]:
        return {key: list(values) for key, values in self._graph._collections.items()}

    @contextlib.contextmanager
    def of(self, core: int) -> Iterator[None]:
        """While it is open, collections are those of the core, and its variables are made."""
        if core == 0:
            yield
            self._first = self._graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES)
            return
        kept = self._collections()
        own = {v: _local_variable_like(v) for v in self._before.get(ops.GraphKeys.GLOBAL_VARIABLES, [])}
        self._graph._collections = {
            # The store and the scope of tf.get_variable, which have tuples as keys, begin anew.
            key: [own.get(value, value) if isinstance(value, tf.Variable) else value for value in values]
            for key, values in self._before.items()
            if isinstance(key, str)
        }
        try:
            yield
            variables = self._graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES)
        finally:
            self._graph._collections = kept
        assert [v.shape for v in variables] == [v.shape for v in self._first], 'every core makes the same variables'
        for variable, first in zip(variables, self._first):
            self._graph.add_to_collection(ops.GraphKeys.LOCAL_VARIABLES, variable)
            with tf.init_scope(), tf.device(variable.device):
                self._start._add_control_input(variable.assign(first.read_value(), read_value=False))


def _local_variable_like(variable: tf.Variable) -> tf.Variable:
    with tf.init_scope():
        return tf.compat.v1.Variable(
            lambda: tf.zeros(variable.shape, variable.dtype.base_dtype),
            trainable=False,
            collections=[],
            name=variable.op.name,
            use_resource=True,
        )


def _replace(operation: tf.Operation, tensor: tf.Tensor) -> None:
    """Makes what reads an operation's first output, or waits for it, read `tensor`, or wait for that."""
    output = operation.outputs[0]
    for consumer in output.consumers():
        for index, value in enumerate(consumer.inputs):
            if value is output:
                consumer._update_input(index, tensor)
    for waiting in operation._control_outputs:
        others = [control_input for control_input in waiting.control_inputs if control_input is not operation]
        waiting._remove_all_control_inputs()
        waiting._add_control_inputs([*others, tensor.op])


def _as_list(values: Any) -> List[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]
