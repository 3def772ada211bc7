"""Builds the graphs that a TPU runs, with TPUEstimator and without a TPU, and inspects them."""

import collections
import contextlib
import os
import re
import sysconfig
from typing import Any, Callable, Counter, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import tensorflow as tf
from tensorflow.contrib.compiler import xla
from tensorflow.python.framework import kernels

import inception_v3
from inception_v3.config import Config
from inception_v3.estimator import arguments_of
from inception_v3.input_pipeline import InputPipeline
from inception_v3.tpu.emulation.system import fixed_topology
from inception_v3.tpu.topology import Topology

# Attributes that mark every operation in the cores' computation, and those of them that XLA runs on the host.
_ON_CORE = '_tpu_replicate'
_OUTSIDE = '_xla_outside_compilation'
# XLA's kernels for CPUs stand in for those for TPUs, which only the TPU's own software has.
_KERNELS = 'XLA_CPU_JIT'
# Operations that a TPU runs and a CPU does not.
_TPU_ONLY = frozenset(
    [
        # The sum over the cores, and the queues from and to the host.
        *('CrossReplicaSum', 'InfeedDequeueTuple', 'OutfeedEnqueueTuple', 'TPUReplicateMetadata'),
        # The loop over steps, which the TPU's compiler converts to a function before XLA sees it.
        *('Enter', 'Exit', 'LoopCond', 'Merge', 'NextIteration', 'Switch'),
    ]
)
# Operations that call Python in the process that built the graph; a TPU's hosts have no Python.
_PYTHON = frozenset(['EagerPyFunc', 'PyFunc', 'PyFuncStateless'])
# Outputs whose shape XLA knows although TensorFlow does not infer it: scratch space that only other devices need, and
# the axes of a broadcast, which XLA computes from shapes at compile time.
_SHAPE_LEFT_TO_XLA = frozenset([('FusedBatchNormV3', 5), ('BroadcastGradientArgs', 0), ('BroadcastGradientArgs', 1)])

# The folder that holds the packages of this program.
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(inception_v3.__file__)))
_PACKAGES = tuple(os.path.join(_ROOT, package, '') for package in ('inception_v3', 'preprocessing', 'data'))
_LIBRARIES = tuple(os.path.join(sysconfig.get_path(name), '') for name in ('stdlib', 'purelib', 'platlib'))
# A placeholder for the address of the TPU; nothing connects to it.
_ANY_ADDRESS = 'grpc://127.0.0.1:8470'


class Flaw(NamedTuple):
    """An operation that a TPU cannot run.

    Attributes:
      operation: name of the operation, preceded by FUNCTION/ if it is in a function.
      type: type of the operation.
      where: the innermost line of this program that created it, FILE:LINE.
      problem: the reason.
    """

    operation: str
    type: str
    where: str
    problem: str

    def __str__(self) -> str:
        return f'{self.operation} ({self.type}), created at {self.where}: {self.problem}'


class Infeed(NamedTuple):
    """The data that one core receives in a step.

    Attributes:
      tensors: the description of each tensor, as `described` returns it.
      bytes: total size of the tensors; None if a shape is unknown.
    """

    tensors: Tuple[str, ...]
    bytes: Optional[int]


class Collectives(NamedTuple):
    """The numbers of sums over the cores in a step: of gradients, and of batch normalization."""

    gradients: int
    batch_norm: int


class _BuiltError(Exception):
    """Raised when a graph is complete, to stop TPUEstimator before it starts a session."""


class _Stop(tf.estimator.SessionRunHook):
    def begin(self) -> None:
        self.graph = tf.compat.v1.get_default_graph()
        raise _BuiltError


def build(config: Config, topology: Topology, is_training: bool) -> tf.Graph:
    """Builds the graph of training or of evaluation, as a run on a TPU of this topology does.

    For an emulated TPU, it is the graph of TPUEstimator before its cores are emulated.

    Args:
      config: configuration of the run; its data files are listed, not read.
      topology: topology of the TPU.
      is_training: build the graph of training, otherwise of evaluation.
    """
    stop = _Stop()
    # With `writes`, TPUEstimator would write the graph for TensorBoard: hundreds of megabytes for a large slice.
    arguments = arguments_of(config, _ANY_ADDRESS, writes=False)
    with fixed_topology(topology), contextlib.suppress(_BuiltError):
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(**arguments)
        if is_training:
            estimator.train(_static(InputPipeline(True, config)), hooks=[stop], max_steps=1)
        else:
            estimator.evaluate(_static(InputPipeline(False, config)), hooks=[stop], steps=1)
    return stop.graph


def _static(pipeline: InputPipeline) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
    """Wraps a pipeline so that a batch of unknown shape raises an error that is clearer than TPUEstimator's."""

    def input_fn(params: Dict[str, Any]) -> tf.data.Dataset:
        dataset = pipeline(params)
        for shape in tf.nest.flatten(tf.compat.v1.data.get_output_shapes(dataset)):
            if not shape.is_fully_defined():
                raise ValueError(f'the input pipeline yields batches of shape {shape}; XLA needs static shapes')
        return dataset

    return input_fn


def on_core(graph: tf.Graph) -> List[tf.Operation]:
    """Returns the operations that run on each core."""
    return [o for o in graph.get_operations() if _has(o, _ON_CORE) and not _has(o, _OUTSIDE)]


def _has(operation: tf.Operation, attribute: str) -> bool:
    try:
        operation.get_attr(attribute)
    except ValueError:
        return False
    return True


def infeeds(graph: tf.Graph) -> Counter[Infeed]:
    """Counts the cores that receive each kind of infeed in a step."""
    found: Counter[Infeed] = collections.Counter()
    for operation in graph.get_operations():
        if operation.type == 'InfeedEnqueueTuple':
            sizes = [size_of(tensor) for tensor in operation.inputs]
            tensors = tuple(described(tensor) for tensor in operation.inputs)
            known = [size for size in sizes if size is not None]
            found[Infeed(tensors, sum(known) if len(known) == len(sizes) else None)] += 1
    return found


def input_pipelines(graph: tf.Graph) -> int:
    """Counts the input pipelines; each runs on a host of its own."""
    return sum(operation.type == 'IteratorV2' for operation in graph.get_operations())


def described(tensor: tf.Tensor) -> str:
    """Returns the dtype and shape of a tensor, such as 'float32 [128, 299, 299, 3]'."""
    return f'{tensor.dtype.name} {"of any shape" if tensor.shape.rank is None else tensor.shape.as_list()}'


def size_of(tensor: tf.Tensor) -> Optional[int]:
    """Returns the bytes of a tensor's values without padding; None if its shape is unknown."""
    count = tensor.shape.num_elements()
    return None if count is None else count * tensor.dtype.size


def collectives(operations: Iterable[tf.Operation]) -> Collectives:
    """Counts the sums over the cores among operations."""
    names = [operation.name for operation in operations if operation.type == 'CrossReplicaSum']
    batch_norm = sum('/BatchNorm' in name for name in names)
    return Collectives(len(names) - batch_norm, batch_norm)


def flaws(graph: tf.Graph) -> Iterator[Flaw]:
    """Yields the operations that a TPU's cores or hosts cannot run, including those in the functions of pipelines."""
    registered = _registered_kernels()
    core = on_core(graph)
    for operation in core:
        if operation.type not in _TPU_ONLY and not any(
            _takes(kernel, operation) for kernel in registered[operation.type]
        ):
            types = sorted({tensor.dtype.base_dtype.name for tensor in [*operation.inputs, *operation.outputs]})
            reason = f'for {", ".join(types)}' if registered[operation.type] else 'of this operation'
            yield _flaw(operation, f'XLA has no kernel {reason}, so a TPU core cannot run it')
    cores = set(core)
    for scope, operation in _with_functions(graph, '', set()):
        if operation.type in _PYTHON and operation not in cores:
            yield _flaw(operation, "calls Python, which a TPU's hosts do not have", scope)


def dynamic_shapes(operations: Iterable[tf.Operation]) -> Iterator[Flaw]:
    """Yields the operations with an output whose shape is unknown at compile time."""
    for operation in operations:
        for index, tensor in enumerate(operation.outputs):
            known = tensor.shape.is_fully_defined() or (operation.type, index) in _SHAPE_LEFT_TO_XLA
            # Not every tensor is used: gradients of unused outputs, and the zeros for them, have unknown shapes, too.
            if not known and _is_used(tensor) and tensor.dtype not in (tf.resource, tf.variant):
                yield _flaw(operation, f'output {index} is {described(tensor)}: XLA needs static shapes')
                break


def _is_used(tensor: tf.Tensor) -> bool:
    """Whether a consumer of the tensor has an effect, or has outputs that are consumed in turn."""
    return any(
        not operation.outputs or any(output.consumers() for output in operation.outputs)
        for operation in tensor.consumers()
    )


def line_of(frames: Iterable[Any]) -> str:
    """Returns FILE:LINE of the innermost frame that is not in a library.

    Args:
      frames: frames of a traceback, outermost first; each begins with its path and line.
    """
    for path, line, *_ in reversed([*frames]):
        path = os.path.abspath(path)
        if path.startswith(_PACKAGES) or not path.startswith((*_LIBRARIES, '<')):
            return f'{os.path.relpath(path)}:{line}'
    return 'a library'


def _flaw(operation: tf.Operation, problem: str, scope: str = '') -> Flaw:
    # TensorFlow creates gradients: for these, name the line that created the operation of the forward pass.
    source = operation._original_op or operation
    return Flaw(scope + operation.name, operation.type, line_of(source.traceback), problem)


def _with_functions(graph: Any, scope: str, seen: Set[str]) -> Iterator[Tuple[str, tf.Operation]]:
    """Yields (scope, operation) for a graph and, recursively, its functions; the scope names the functions."""
    for operation in graph.get_operations():
        yield scope, operation
    for name, function in graph._functions.items():
        if name not in seen and hasattr(function, 'graph'):
            seen.add(name)
            yield from _with_functions(function.graph, f'{re.sub("^__inference_", "", name)}/', seen)


def _registered_kernels() -> Dict[str, List[Any]]:
    """Returns XLA's kernels by type of operation; TensorFlow registers them at the first compilation."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(xla.compile(lambda: tf.constant(0)))
    found: Dict[str, List[Any]] = collections.defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == _KERNELS:
            found[kernel.op].append(kernel)
    return found


def _takes(kernel: Any, operation: tf.Operation) -> bool:
    """Whether a kernel supports the types of an operation's attributes."""
    for constraint in kernel.constraint:
        allowed = constraint.allowed_values.list.type
        value = operation.get_attr(constraint.name)
        types = value if isinstance(value, list) else [value]
        if allowed and not all(dtype.as_datatype_enum in allowed for dtype in types):
            return False
    return True
