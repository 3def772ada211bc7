"""Emulates a TPU: builds the graph of TPUEstimator for virtual devices of the CPU.

TPUEstimator builds one training or evaluation step inside a loop, which a TPU replicates over its cores. Here the body
of that loop is built once for each core, on a virtual device of its own, and one loop runs all cores together. For a
sum over the cores, each core first builds a placeholder: an identity operation with the gradient of a sum. When all
cores are built, the sum of the placeholders' inputs replaces the placeholders.
"""

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple
from unittest import mock

from compat.names import tpu_system_metadata_type  # isort: skip  Before TensorFlow is loaded.
from compat import tf, tf2  # isort: skip
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.client.session import _DeviceAttributes
from tensorflow.python.framework import ops, tensor_util
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu, tpu_feed, tpu_function, tpu_system_metadata, training_loop
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from compat.errors import CommandError
from compat.messages import counted
from inception_v3.tpu.supported import infeed_flaws, python_flaws, refuse, unsupported
from inception_v3.tpu.topology import Topology

# TensorFlow's job name for the hosts and cores of a Cloud TPU.
_TPU_JOB = 'tpu_worker'

# The capacity of a core's infeed in batches, and of its outfeed in results.
_QUEUE_CAPACITY = 2

# The prefix of a core's name scope, before its number.
_SCOPE = 'core_'

_REPLICATED_CORE = 'TPU_REPLICATED_CORE'

# The placeholder for CrossReplicaSum, which CPUs lack. It has the same inputs: a tensor, and the groups of cores.
_STAND_IN = 'IdentityN'
_STAND_IN_GRADIENT = 'EmulatedCrossReplicaSum'

# The operations in place of a core's infeed and outfeed; XLA has no kernels for them.
_QUEUE_OPERATIONS = ('QueueDequeueV2', 'QueueEnqueueV2')


@contextlib.contextmanager
def fixed_topology(topology: Topology) -> Iterator[None]:
    """Context manager in which TPUEstimator finds a TPU of this topology at any address, without a connection.

    TPUEstimator needs only the topology to build a TPU's graph.
    """
    devices = [
        _DeviceAttributes(f'/job:{_TPU_JOB}/replica:0/task:{host}/device:{kind}:{number}', kind, 0, 0)
        for host in range(topology.hosts)
        for kind, number in [('CPU', 0), *(('TPU', core) for core in range(topology.cores_per_host))]
    ]

    def answer(master_address: str, cluster_def: Optional[Any] = None, query_topology: bool = False) -> Any:
        return tpu_system_metadata_type()(
            num_cores=topology.cores,
            num_hosts=topology.hosts,
            num_of_cores_per_host=topology.cores_per_host,
            topology=None,
            devices=devices,
        )

    with mock.patch.object(tpu_system_metadata, '_query_tpu_system_metadata', answer):
        yield


@ops.RegisterGradient(_STAND_IN_GRADIENT)
def _cross_replica_sum_gradient(
    operation: tf.Operation, gradient: tf.Tensor, unused: Optional[tf.Tensor]
) -> List[Optional[tf.Tensor]]:
    return [gen_tpu_ops.cross_replica_sum(gradient, operation.inputs[1]), None]


class EmulatedCores:
    """The cores of an emulated TPU. Virtual devices are numbered first for its hosts, then for its cores."""

    def __init__(self, topology: Topology, session_config: Optional[tf.ConfigProto] = None):
        self._topology = topology
        self._session_config = session_config
        self._core: Optional[int] = None
        self._sums: List[List[tf.Operation]] = []
        self._queues: Dict[Tuple[ops.Graph, str, int], tf.queue.FIFOQueue] = {}

    def device_of(self, operation: tf.Operation) -> str:
        """Maps an operation on a host or core of the TPU to a virtual device; a device function for `tf.device`."""
        spec = tf.DeviceSpec.from_string(operation.device)
        if spec.device_type == _REPLICATED_CORE or (spec.job == _TPU_JOB and spec.device_type == 'TPU'):
            return self._core_device(self._core or 0)
        if spec.job == _TPU_JOB:
            return f'/device:CPU:{spec.task or 0}'
        return operation.device

    def _core_device(self, core: int) -> str:
        return f'/device:CPU:{self._topology.hosts + core}'

    @contextlib.contextmanager
    def in_place_of_a_tpu(self) -> Iterator[None]:
        """Context manager in which TPUEstimator builds its graphs for these cores."""
        capture = tpu_estimator._CapturedObject.capture

        def capture_of_the_first_core(captured: Any, value: Any) -> None:
            # TPUEstimator captures a Python object of the step that it builds, and accepts only one.
            if not self._core:
                capture(captured, value)

        replacements: List[Tuple[Any, str, Any]] = [
            (tpu_estimator, '_validate_tpu_training_graph', self._check_gradients_are_summed),
            # TPUEstimator uses these two from the module in 1.15 and from the interface in 2.15.
            *((module, 'initialize_system', lambda **unused: tf.constant(b'')) for module in (tpu, tf.tpu)),
            *((module, 'shutdown_system', lambda **unused: tf.no_op()) for module in (tpu, tf.tpu)),
            (tpu, 'split_compile_and_shard', self._shard),
            (training_loop, 'while_loop', self._while_loop),
            (gen_tpu_ops, 'cross_replica_sum', self._cross_replica_sum),
            (gen_xla_ops, 'xla_replica_id', self._replica_id),
            (tpu_ops, 'infeed_enqueue_tuple', self._infeed_enqueue),
            (tpu_ops, 'infeed_dequeue_tuple', self._infeed_dequeue),
            (tpu_ops, 'outfeed_enqueue_tuple', self._outfeed_enqueue),
            (tpu_ops, 'outfeed_dequeue_tuple', self._outfeed_dequeue),
            (tpu_feed.InfeedQueue, 'generate_dequeue_op', _generate_another_dequeue_op),
            (tpu_estimator._CapturedObject, 'capture', capture_of_the_first_core),
            (tpu_estimator._OutfeedHostCall, 'record', _record_anew),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in replacements:
                stack.enter_context(mock.patch.object(owner, name, replacement))
            yield

    # Infeed and outfeed: two queues for each core.

    def _queue(self, kind: str, core: int, dtypes: Sequence[tf.DType], shapes: Sequence[Any]) -> tf.queue.FIFOQueue:
        key = (tf.get_default_graph(), kind, core)
        if key not in self._queues:
            with tf.init_scope(), tf.device(self._core_device(core)):
                self._queues[key] = tf.queue.FIFOQueue(_QUEUE_CAPACITY, dtypes, shapes, name=f'{kind}_of_core_{core}')
        return self._queues[key]

    def _core_at(self, ordinal: int) -> int:
        """The core with number `ordinal` on the host whose device scope is current."""
        with tf.control_dependencies(None):
            device = tf.DeviceSpec.from_string(tf.no_op().device)
        return device.device_index * self._topology.cores_per_host + ordinal

    def _infeed_enqueue(
        self,
        inputs: Sequence[tf.Tensor],
        shapes: Sequence[Any],
        name: str,
        device_ordinal: int,
    ) -> tf.Operation:
        refuse(infeed_flaws(inputs), 'a batch of the input pipeline')
        queue = self._queue('infeed', self._core_at(device_ordinal), [x.dtype for x in inputs], shapes)
        return queue.enqueue(inputs, name)

    def _infeed_dequeue(self, dtypes: Any, shapes: Any, name: Optional[str] = None) -> List[tf.Tensor]:
        assert self._core is not None, 'only a core reads an infeed'
        return _as_list(self._queue('infeed', self._core, dtypes, shapes).dequeue(name))

    def _outfeed_enqueue(self, inputs: Sequence[tf.Tensor]) -> tf.Operation:
        assert self._core is not None, 'only a core writes an outfeed'
        queue = self._queue('outfeed', self._core, [x.dtype for x in inputs], [x.shape for x in inputs])
        return queue.enqueue(inputs)

    def _outfeed_dequeue(self, dtypes: Any, shapes: Any, device_ordinal: int) -> List[tf.Tensor]:
        return _as_list(self._queue('outfeed', self._core_at(device_ordinal), dtypes, shapes).dequeue())

    # The computation, which is replicated within its loop.

    def _shard(self, computation: Callable, inputs: Any, num_shards: int, **unused: Any) -> Tuple[tf.Tensor, List[Any]]:
        """Replaces `tpu.split_compile_and_shard`: returns (the result of the compilation, the first core's outputs)."""
        assert num_shards == self._topology.cores, (num_shards, self._topology)
        # As on a TPU, variables are resource variables unless the model function specifies otherwise.
        with tf.variable_scope(tf.get_variable_scope(), use_resource=True):
            return tf.constant(b''), _as_list(computation(*(values[0] for values in inputs)))

    def _while_loop(self, condition: Callable, body: Callable, inputs: Sequence[Any], **unused: Any) -> List[tf.Tensor]:
        """Replaces `training_loop.while_loop` by one loop that runs the step of all cores."""
        start = tf.no_op('start_of_loop')
        with tf.control_dependencies([start]):
            inputs = [tf.identity(x) for x in inputs]

        def body_of_all_cores(*loop_variables: tf.Tensor) -> List[tf.Tensor]:
            outputs = self._replicate(lambda core: _as_list(body(*loop_variables)), start)
            with tf.control_dependencies([x for output in outputs for x in output]):
                return [tf.identity(x) for x in outputs[0]]

        return _as_list(tf.while_loop(condition, body_of_all_cores, inputs, parallel_iterations=1))

    def replicate(self, computation: Callable[[int], Any]) -> List[Any]:
        """The results of a computation on every core, without a loop, inside `in_place_of_a_tpu`.

        In every `session.run`, all cores start with the values of the first core's variables, and only the first core's
        variables keep their new values.
        """
        start = tf.no_op('start')
        with tf.control_dependencies([start]):
            return self._replicate(computation, start)

    def _replicate(self, computation: Callable[[int], Any], start: tf.Operation) -> List[Any]:
        variables = _VariablesOfCores(tf.get_default_graph(), start)
        self._sums = [[] for _ in range(self._topology.cores)]
        outputs = []
        with tpu_function.tpu_shard_context(self._topology.cores):
            for core in range(self._topology.cores):
                with self._building(core), variables.of(core):
                    # If a result is the placeholder of a sum, this identity reads the sum that replaces it.
                    outputs.append(tf.nest.map_structure(tf.identity, computation(core)))
                if core == 0:
                    _check_step(self._session_config)
        for peers in zip(*self._sums):
            self._sum(peers)
        return outputs

    @contextlib.contextmanager
    def _building(self, core: int) -> Iterator[None]:
        """Context manager in which operations are built for one core."""
        self._core = core
        try:
            replica = tf.distribute.ReplicaContext(tf.distribute.get_strategy(), core)
            with tf.name_scope(f'{_SCOPE}{core}'), tf.device(self._core_device(core)), replica:
                yield
        finally:
            self._core = None

    def _replica_id(self) -> tf.Tensor:
        assert self._core is not None, 'only a core has a replica ID'
        return tf.constant(self._core)

    # Sums over the cores.

    def _check_gradients_are_summed(self, *context: Any) -> None:
        """Replaces TPUEstimator's check, which looks for the type of operation that the placeholders replace.

        The arguments of 2.15 are unused: one core must sum, too.
        """
        if not any(self._sums):
            raise CommandError(
                'CrossShardOptimizer must be used for model training on TPUs: no core sums its gradients.'
            )

    def _cross_replica_sum(self, x: tf.Tensor, group_assignment: Any, name: Optional[str] = None) -> tf.Tensor:
        assert self._core is not None, 'only cores are summed over'
        with tf.get_default_graph().gradient_override_map({_STAND_IN: _STAND_IN_GRADIENT}):
            summed, _ = tf.identity_n([x, group_assignment], name or 'CrossReplicaSum')
        self._sums[self._core].append(summed.op)
        return summed

    def _sum(self, peers: Sequence[tf.Operation]) -> None:
        """Replaces the placeholders of one sum, one per core, by the sum over each group of cores."""
        groups = tensor_util.constant_value(peers[0].inputs[1]).tolist()
        for group in groups:
            terms = [peers[core].inputs[0] for core in group]
            with tf.device(terms[0].device):
                # Add in a fixed order: add_n starts with any term whose buffer it can reuse, so its last bits vary.
                total = tf.identity(functools.reduce(tf.add, terms))
            for core in group:
                _replace(peers[core], total)


_record = tpu_estimator._OutfeedHostCall.record
_generate_dequeue_op = tpu_feed.InfeedQueue.generate_dequeue_op


def _record_anew(host_call: Any, calls: Any) -> None:
    # Each core sends its own tensors in a host call of the same form.
    host_call._names.clear()
    for recorded in ('_tensor_keys', '_tensors', '_tensor_dtypes', '_tensor_shapes'):
        getattr(host_call, recorded).clear()
    _record(host_call, calls)


def _generate_another_dequeue_op(queue: Any, tpu_device: int = 0) -> List[tf.Tensor]:
    queue._generated_dequeue_op = False
    return _generate_dequeue_op(queue, tpu_device)


def _check_step(session_config: Optional[tf.ConfigProto]) -> None:
    """Refuses the operations of the first core's step that a TPU cannot run. Only a loop has a step."""
    operations = [
        operation
        for operation in tf.get_default_graph().get_operations()
        # The initial values of variables are outside of the loop.
        if f'{_SCOPE}0/' in operation.name and operation._get_control_flow_context() is not None
    ]
    refuse(unsupported(operations, _QUEUE_OPERATIONS, session_config), "the model function's step")


class _VariablesOfCores:
    """Variables for each core. The first core's are the model's variables; only these keep their values after a loop.

    Before each loop, and before the operation `start`, the first core's values are copied to the other cores.
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
        """Context manager in which the graph's collections and new variables belong to one core."""
        if core == 0:
            yield
            self._first = self._graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES)
            return
        kept = self._collections()
        own = {v: _local_variable_like(v) for v in self._before.get(ops.GraphKeys.GLOBAL_VARIABLES, [])}
        self._graph._collections = {
            # The variable store and scope of tf.get_variable, with tuples as keys, are left out: they start empty.
            key: [own.get(value, value) if isinstance(value, tf2.Variable) else value for value in values]
            for key, values in self._before.items()
            if isinstance(key, str)
        }
        try:
            yield
            variables = self._graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES)
        finally:
            self._graph._collections = kept
        assert [v.shape for v in variables] == [v.shape for v in self._first], 'every core creates the same variables'
        for variable, first in zip(variables, self._first):
            self._graph.add_to_collection(ops.GraphKeys.LOCAL_VARIABLES, variable)
            with tf.init_scope(), tf.device(variable.device):
                self._start._add_control_input(variable.assign(first.read_value(), read_value=False))


def _local_variable_like(variable: tf.Variable) -> tf.Variable:
    with tf.init_scope():
        return tf.Variable(
            lambda: tf.zeros(variable.shape, variable.dtype.base_dtype),
            trainable=False,
            collections=[],
            name=variable.op.name,
            use_resource=True,
        )


def _replace(operation: tf.Operation, tensor: tf.Tensor) -> None:
    """Redirects the consumers of an operation's first output, and its control dependencies, to `tensor`."""
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


def notice(topology: Topology) -> str:
    """The notice that a run shows when its TPU is emulated."""
    cores, hosts = counted(topology.cores, 'core'), counted(topology.hosts, 'host')
    return f"""THE TPU IS EMULATED: {cores} on {hosts}, as virtual devices of this CPU.
  as on a TPU: TPUEstimator's program, infeed and outfeed, host calls, --iterations steps per loop,
    sums over cores, and a copy of the variables for each core, of which the first core's is kept
  not as on a TPU: speed, memory, XLA and its arithmetic (a CPU multiplies bfloat16 in float32)"""


class EmulatedTPUEstimator(tf.estimator.tpu.TPUEstimator):
    """A TPUEstimator that trains and evaluates on a TPU emulated by this machine's CPU.

    The `RunConfig` has no address; the emulated devices and their job are added to it.
    """

    def __init__(self, topology: Topology, config: Any, **arguments: Any):
        self._topology = topology
        self._cores: Optional[EmulatedCores] = None
        session_config = tf.ConfigProto()
        session_config.CopyFrom(config.session_config)
        session_config.device_count['CPU'] = topology.devices
        # Optimizing a graph that has a copy for each core would take minutes, and save seconds.
        session_config.graph_options.rewrite_options.disable_meta_optimizer = True
        tpu_config = config.tpu_config._replace(tpu_job_name=_TPU_JOB)
        super().__init__(config=config.replace(session_config=session_config, tpu_config=tpu_config), **arguments)

    @staticmethod
    def _assert_members_are_not_overridden(estimator: Any) -> None:
        """Allows this subclass to override `train` and `evaluate`, which Estimator forbids."""

    @contextlib.contextmanager
    def _emulating(self) -> Iterator[None]:
        self._cores = EmulatedCores(self._topology, self._session_config)
        try:
            with fixed_topology(self._topology), self._cores.in_place_of_a_tpu():
                yield
        finally:
            self._cores = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Like `TPUEstimator.train`."""
        with self._emulating():
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """Like `TPUEstimator.evaluate`."""
        with self._emulating():
            return super().evaluate(*args, **kwargs)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        # TPUEstimator also builds the input pipelines in this call. An export is built for the CPU, without virtual
        # devices.
        with tf.device(self._cores.device_of if self._cores else None):
            specification = super()._call_model_fn(features, labels, mode, config)
        if self._cores:
            refuse(python_flaws(tf.get_default_graph()), 'Python in a graph')
        return specification
