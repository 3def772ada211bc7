"""The graphs that a TPU runs, built by TPUEstimator without a TPU, and what can be read from them."""

import collections
import contextlib
import os
import re
import sysconfig
from typing import Any, Callable, Counter, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple
from unittest import mock

import tensorflow as tf
from tensorflow.contrib.compiler import xla
from tensorflow.python.framework import kernels

from inception_v3.config import Config
from inception_v3.estimator import arguments_of
from inception_v3.input_pipeline import InputPipeline
from inception_v3.tpu.emulation.system import answering_as
from inception_v3.tpu.topology import Topology

# The attribute of all operations that run on the cores, and of those among them that XLA leaves to the host.
_ON_CORE = '_tpu_replicate'
_OUTSIDE = '_xla_outside_compilation'
# XLA's operations on a CPU stand in for those on a TPU, which are in the TPU's software alone.
_KERNELS = 'XLA_CPU_JIT'
# What a TPU runs and a CPU does not.
_TPU_ONLY = frozenset(
    [
        # The sum over the cores, and the queues from and to the host.
        *('CrossReplicaSum', 'InfeedDequeueTuple', 'OutfeedEnqueueTuple', 'TPUReplicateMetadata'),
        # The loop over steps, which the TPU's compiler makes a function of before XLA sees it.
        *('Enter', 'Exit', 'LoopCond', 'Merge', 'NextIteration', 'Switch'),
    ]
)
# What needs the Python of the process that built the graph: there is none on a TPU's hosts.
_PYTHON = frozenset(['EagerPyFunc', 'PyFunc', 'PyFuncStateless'])
# Outputs whose shape TensorFlow does not say, and XLA knows: space that only another device needs, and the axes of a
# broadcast, which are computed from shapes while compiling.
_SHAPE_LEFT_TO_XLA = frozenset([('FusedBatchNormV3', 5), ('BroadcastGradientArgs', 0), ('BroadcastGradientArgs', 1)])

_PACKAGES = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), package, '')
    for package in ('inception_v3', 'preprocessing', 'data')
)
_LIBRARIES = tuple(os.path.join(sysconfig.get_path(name), '') for name in ('stdlib', 'purelib', 'platlib'))
# An address that nothing is asked at.
_ANY_ADDRESS = 'grpc://127.0.0.1:8470'


class Flaw(NamedTuple):
    """Something in a graph that a TPU cannot run.

    Attributes:
      operation: its name, or that of its function and its own.
      type: its type.
      where: the innermost line of the program that made it, FILE:LINE.
      problem: what is wrong with it.
    """

    operation: str
    type: str
    where: str
    problem: str

    def __str__(self) -> str:
        return f'{self.operation} ({self.type}), made at {self.where}: {self.problem}'


class Infeed(NamedTuple):
    """What one core is sent in a step.

    Attributes:
      tensors: each as `described`.
      bytes: of all of them; None if a shape is not known.
    """

    tensors: Tuple[str, ...]
    bytes: Optional[int]


class Collectives(NamedTuple):
    """Sums over cores in a step: of gradients, and of batch normalization."""

    gradients: int
    batch_norm: int


class _BuiltError(Exception):
    """Raised where a session would begin: the graph is complete."""


class _Stop(tf.estimator.SessionRunHook):
    def begin(self) -> None:
        self.graph = tf.compat.v1.get_default_graph()
        raise _BuiltError


def build(config: Config, topology: Topology, is_training: bool) -> tf.Graph:
    """Builds the graph of training or of evaluation, as a run on a TPU of this topology does.

    That of an emulated TPU, too, is the one that TPUEstimator makes, before its cores are emulated.

    Args:
      config: of the run; its files are listed, and not read.
      topology: of the TPU.
      is_training: training, else evaluation.
    """
    stop = _Stop()
    # A training session writes its graph for TensorBoard before it begins: of a large slice, hundreds of megabytes.
    unwritten = mock.patch.object(tf.compat.v1.summary.FileWriterCache, 'get')
    with answering_as(topology), unwritten, contextlib.suppress(_BuiltError):
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(**arguments_of(config, _ANY_ADDRESS))
        if is_training:
            estimator.train(_static(InputPipeline(True, config)), hooks=[stop], max_steps=1)
        else:
            estimator.evaluate(_static(InputPipeline(False, config)), hooks=[stop], steps=1)
    return stop.graph


def _static(pipeline: InputPipeline) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
    """A pipeline whose batches must have shapes that are known, of which TPUEstimator complains obscurely."""

    def input_fn(params: Dict[str, Any]) -> tf.data.Dataset:
        dataset = pipeline(params)
        for shape in tf.nest.flatten(tf.compat.v1.data.get_output_shapes(dataset)):
            if not shape.is_fully_defined():
                raise ValueError(f'the input pipeline makes batches of shape {shape}; XLA needs every size')
        return dataset

    return input_fn


def on_core(graph: tf.Graph) -> List[tf.Operation]:
    """The operations that the cores run; all cores run the same."""
    return [o for o in graph.get_operations() if _has(o, _ON_CORE) and not _has(o, _OUTSIDE)]


def _has(operation: tf.Operation, attribute: str) -> bool:
    try:
        operation.get_attr(attribute)
    except ValueError:
        return False
    return True


def infeeds(graph: tf.Graph) -> Counter[Infeed]:
    """What the cores are sent in a step: each kind, and how many cores are sent it."""
    found: Counter[Infeed] = collections.Counter()
    for operation in graph.get_operations():
        if operation.type == 'InfeedEnqueueTuple':
            sizes = [size_of(tensor) for tensor in operation.inputs]
            tensors = tuple(described(tensor) for tensor in operation.inputs)
            known = [size for size in sizes if size is not None]
            found[Infeed(tensors, sum(known) if len(known) == len(sizes) else None)] += 1
    return found


def input_pipelines(graph: tf.Graph) -> int:
    """The number of input pipelines, each on a host of its own."""
    return sum(operation.type == 'IteratorV2' for operation in graph.get_operations())


def described(tensor: tf.Tensor) -> str:
    """The dtype and shape of a tensor, such as 'float32 [128, 299, 299, 3]'."""
    return f'{tensor.dtype.name} {"of any shape" if tensor.shape.rank is None else tensor.shape.as_list()}'


def size_of(tensor: tf.Tensor) -> Optional[int]:
    """The bytes of a tensor's values, without padding; None if its shape is not known."""
    count = tensor.shape.num_elements()
    return None if count is None else count * tensor.dtype.size


def collectives(operations: Iterable[tf.Operation]) -> Collectives:
    """The sums over cores among operations."""
    names = [operation.name for operation in operations if operation.type == 'CrossReplicaSum']
    batch_norm = sum('/BatchNorm' in name for name in names)
    return Collectives(len(names) - batch_norm, batch_norm)


def flaws(graph: tf.Graph) -> Iterator[Flaw]:
    """What a TPU cannot run: on its cores, or on its hosts, in functions of the input pipeline, too."""
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
            yield _flaw(operation, "needs this process's Python, and there is none on a TPU's hosts", scope)


def dynamic_shapes(operations: Iterable[tf.Operation]) -> Iterator[Flaw]:
    """The operations of the cores with a result whose shape is not known before it is computed."""
    for operation in operations:
        for index, tensor in enumerate(operation.outputs):
            known = tensor.shape.is_fully_defined() or (operation.type, index) in _SHAPE_LEFT_TO_XLA
            # Gradients of outputs without a use have none, either, nor have the zeros that a tape makes for those.
            if not known and _is_used(tensor) and tensor.dtype not in (tf.resource, tf.variant):
                yield _flaw(operation, f'output {index} is {described(tensor)}: XLA needs every size')
                break


def _is_used(tensor: tf.Tensor) -> bool:
    """Whether an operation takes it that has an effect, or whose own results are taken."""
    return any(
        not operation.outputs or any(output.consumers() for output in operation.outputs)
        for operation in tensor.consumers()
    )


def line_of(frames: Iterable[Any]) -> str:
    """The innermost of a traceback's frames, the outermost first, that is not in a library: FILE:LINE."""
    for path, line, *_ in reversed([*frames]):
        path = os.path.abspath(path)
        if path.startswith(_PACKAGES) or not path.startswith((*_LIBRARIES, '<')):
            return f'{os.path.relpath(path)}:{line}'
    return 'a library'


def _flaw(operation: tf.Operation, problem: str, scope: str = '') -> Flaw:
    # A gradient is made by TensorFlow: the line that counts is the one that made what it is the gradient of.
    made = operation._original_op or operation
    return Flaw(scope + operation.name, operation.type, line_of(made.traceback), problem)


def _with_functions(graph: Any, scope: str, seen: Set[str]) -> Iterator[Tuple[str, tf.Operation]]:
    """The operations of a graph and of its functions, and theirs; each with the functions that it is in."""
    for operation in graph.get_operations():
        yield scope, operation
    for name, function in graph._functions.items():
        if name not in seen and hasattr(function, 'graph'):
            seen.add(name)
            yield from _with_functions(function.graph, f'{re.sub("^__inference_", "", name)}/', seen)


def _registered_kernels() -> Dict[str, List[Any]]:
    """XLA's kernels by the type of operation; they are there once something was compiled."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(xla.compile(lambda: tf.constant(0)))
    found: Dict[str, List[Any]] = collections.defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == _KERNELS:
            found[kernel.op].append(kernel)
    return found


def _takes(kernel: Any, operation: tf.Operation) -> bool:
    """Whether a kernel is one for the types of an operation's attributes."""
    for constraint in kernel.constraint:
        allowed = constraint.allowed_values.list.type
        value = operation.get_attr(constraint.name)
        types = value if isinstance(value, list) else [value]
        if allowed and not all(dtype.as_datatype_enum in allowed for dtype in types):
            return False
    return True
