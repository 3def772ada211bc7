"""The operations and types that a TPU refuses, named with the line that created them."""

import collections
import functools
import os
import re
import sysconfig
from typing import Any, Collection, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.compiler.xla import xla
from tensorflow.python.framework import kernels
from tensorflow.python.tpu.ops import tpu_ops

from compat import native_messages
from compat.errors import CommandError
from compat.messages import listed

# XLA's kernels for CPUs stand in for its kernels for TPUs, which only the TPU's own software has.
_KERNELS = 'XLA_CPU_JIT'
# Operations that a TPU runs and a CPU does not.
_TPU_ONLY = frozenset(
    [
        # The sum over the cores, and the queues from and to the host.
        'CrossReplicaSum',
        'InfeedDequeueTuple',
        'OutfeedEnqueueTuple',
        'TPUReplicateMetadata',
        # The loop over steps, which the TPU's compiler converts to a function before XLA sees it.
        'Enter',
        'Exit',
        'LoopCond',
        'Merge',
        'NextIteration',
        'Switch',
    ]
)
# Operations that call Python in the process that built the graph; a TPU's hosts have no Python.
_PYTHON = frozenset(['EagerPyFunc', 'PyFunc', 'PyFuncStateless'])

# The folder that holds the packages of this program.
_ROOT = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
_PACKAGES = tuple(os.path.join(_ROOT, package, '') for package in ('inception_v3', 'preprocessing', 'data'))
_EMULATION = os.path.join(_ROOT, 'inception_v3', 'tpu', 'emulation.py')
_LIBRARIES = tuple(os.path.join(sysconfig.get_path(name), '') for name in ('stdlib', 'purelib', 'platlib'))


class Flaw(NamedTuple):
    """An operation that a TPU cannot run; the name of an operation in a function is FUNCTION/NAME.

    `where` is the innermost line of this program that created the operation, FILE:LINE.
    """

    operation: str
    type: str
    where: str
    problem: str

    def __str__(self) -> str:
        return f'{self.operation} ({self.type}), created at {self.where}: {self.problem}'


def unsupported(
    operations: Iterable[tf.Operation],
    allowed: Collection[str] = (),
    session_config: Optional[tf.ConfigProto] = None,
) -> Iterator[Flaw]:
    """Yields the operations that a core cannot run, including those in the functions that they call.

    `allowed` are further types of operations that a core runs. If this is the first session of the process,
    `session_config` determines the threads of all sessions.
    """
    for scope, operation in _with_called(operations, set()):
        if operation.type in _TPU_ONLY or operation.type in allowed:
            continue
        if any(tensor.dtype._is_ref_dtype for tensor in operation.inputs):
            yield flaw(operation, 'a TPU core needs a resource variable here: set use_resource=True', scope)
            continue
        registered = _registered_kernels(session_config and session_config.SerializeToString())[operation.type]
        if not any(_takes(kernel, operation) for kernel in registered):
            types = sorted({tensor.dtype.base_dtype.name for tensor in [*operation.inputs, *operation.outputs]})
            reason = f'for {", ".join(types)}' if registered else 'of this operation'
            yield flaw(operation, f'XLA has no kernel {reason}, so a TPU core cannot run it', scope)


def python_flaws(graph: tf.Graph, besides: Iterable[tf.Operation] = ()) -> Iterator[Flaw]:
    """Yields the operations of a graph and its functions that call Python, except those in `besides`."""
    left_out = set(besides)
    for scope, operation in _with_functions(graph, '', set()):
        if operation.type in _PYTHON and operation not in left_out:
            yield flaw(operation, "calls Python, which a TPU's hosts do not have", scope)


def infeed_flaws(tensors: Iterable[tf.Tensor]) -> Iterator[Flaw]:
    """Yields the tensors whose types the infeed of a TPU does not accept."""
    # The set that TensorFlow itself checks when a core reads its infeed.
    takes = tpu_ops._SUPPORTED_INFEED_DTYPES
    for tensor in tensors:
        if tensor.dtype.base_dtype not in takes:
            names = ', '.join(sorted(dtype.name for dtype in takes))
            yield flaw(
                tensor.op,
                f'a TPU takes no {tensor.dtype.base_dtype.name} in its infeed, only {names}; cast it in the input '
                'pipeline',
            )


def refuse(flaws: Iterable[Flaw], what: str) -> None:
    """Raises an error that names the flaws of a part of the program, if any."""
    found = [str(each) for each in dict.fromkeys(flaws)]
    if found:
        raise CommandError(f'A TPU refuses {what}:\n  ' + listed(found, 10, '\n  '))


def line_of(frames: Iterable[Any]) -> str:
    """Returns FILE:LINE of the innermost frame that is neither in a library nor in the emulation of a TPU."""
    for path, line, *_ in reversed([*frames]):
        path = os.path.abspath(path)
        if path == _EMULATION:
            continue
        if path.startswith(_PACKAGES) or not path.startswith((*_LIBRARIES, '<')):
            return f'{os.path.relpath(path)}:{line}'
    return 'a library'


def flaw(operation: tf.Operation, problem: str, scope: str = '') -> Flaw:
    """Returns a flaw of an operation, with its line; the scope names the function that has the operation."""
    # TensorFlow creates gradients: for these, name the line that created the operation of the forward pass.
    source = operation._original_op or operation
    return Flaw(scope + operation.name, operation.type, line_of(source.traceback), problem)


def _with_called(operations: Iterable[tf.Operation], seen: Set[str]) -> Iterator[Tuple[str, tf.Operation]]:
    """Yields (scope, operation) for operations and, recursively, for called functions, without arguments."""
    for operation in operations:
        yield '', operation
        for attribute in operation.op_def.attr:
            if attribute.type not in ('func', 'list(func)'):
                continue
            value = operation.node_def.attr[attribute.name]
            for name in [value.func.name, *(called.name for called in value.list.func)]:
                function = operation.graph._functions.get(name) if name and name not in seen else None
                if hasattr(function, 'graph'):
                    seen.add(name)
                    scope = f'{re.sub("^__inference_", "", name)}/'
                    # These placeholders in the function's graph are replaced by a call.
                    arguments = {tensor.op for tensor in function.graph.inputs}
                    own = [each for each in function.graph.get_operations() if each not in arguments]
                    yield from ((scope + inner, each) for inner, each in _with_called(own, seen))


def _with_functions(graph: Any, scope: str, seen: Set[str]) -> Iterator[Tuple[str, tf.Operation]]:
    """Yields (scope, operation) for a graph and all its functions.

    In a large graph, a search for the functions that are called would take seconds.
    """
    for operation in graph.get_operations():
        yield scope, operation
    for name, function in graph._functions.items():
        if name not in seen and hasattr(function, 'graph'):
            seen.add(name)
            yield from _with_functions(function.graph, f'{re.sub("^__inference_", "", name)}/', seen)


@functools.lru_cache(maxsize=None)
def _registered_kernels(session_config: Optional[bytes]) -> Dict[str, List[Any]]:
    """Returns XLA's kernels by type of operation; TensorFlow registers them at the first compilation."""
    config = tf.ConfigProto.FromString(session_config or b'')
    # 2.15 announces its first compilation on standard error.
    with native_messages.captured(), tf.Graph().as_default(), tf.Session(config=config) as session:
        session.run(xla.compile(lambda: tf.constant(0)))
    found: Dict[str, List[Any]] = collections.defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == _KERNELS:
            found[kernel.op].append(kernel)
    return found


def _takes(kernel: Any, operation: tf.Operation) -> bool:
    for constraint in kernel.constraint:
        allowed = constraint.allowed_values.list.type
        value = operation.get_attr(constraint.name)
        types = value if isinstance(value, list) else [value]
        if allowed and not all(dtype.as_datatype_enum in allowed for dtype in types):
            return False
    return True
