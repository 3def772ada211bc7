"""What a TPU core's memory holds: variables, counted, and activations, estimated; both from the graph."""

import math
import re
from typing import Iterable, List, NamedTuple, Optional, Set, Tuple

import tensorflow as tf

from inception_v3.preflight.tpu_graph import size_of

ESTIMATE = (
    'The activations are the tensors that the backward pass reads, with their padding: of its first and last axis, a '
    'TPU pads one to a multiple of 128 and the other of 8, here whichever way takes less. What element-wise operations '
    'and concatenations make is not kept: XLA fuses them and computes them again from what they read (except for '
    'the inputs of max pooling). The infeed counts once. For evaluation, it is the largest inputs and results of one '
    'operation. Left out: gradients and scratch, which take the room of activations that were freed; fragmentation; '
    'and that the compiler recomputes more, and lays out otherwise, when memory is short. So an estimate above the '
    'memory is a warning, and an error only if it is one and a half times the memory even without padding.'
)
# XLA recomputes what does not fit, up to a point; an estimate that is so far above the memory is past it.
HOPELESS = 1.5

_BACKWARD = re.compile(r'(^|/)gradients(_\d+)?/')
_AVERAGE = 'ExponentialMovingAverage'
# Operations that read no values, but shapes.
_SHAPE_READERS = frozenset(['Shape', 'ShapeN', 'Size', 'Rank', 'ZerosLike', 'OnesLike', 'ConcatOffset'])
# Operations that take a window of their input at a time, and cannot be fused with what makes it.
_WINDOWED = frozenset(['MaxPoolGrad', 'MaxPoolGradV2'])
# What XLA fuses with the operations that read it.
_RECOMPUTED = frozenset(
    [
        *('Add', 'AddV2', 'BiasAdd', 'Mul', 'Neg', 'RealDiv', 'Round', 'Rsqrt', 'Sqrt', 'Square'),
        *('SquaredDifference', 'Sub'),
        *('Cast', 'GreaterEqual', 'Maximum', 'Minimum', 'Relu', 'Relu6', 'Select', 'SelectV2'),
        *('ConcatV2', 'ExpandDims', 'Identity', 'IdentityN', 'Reshape', 'Slice', 'Split', 'SplitV', 'Squeeze'),
        *('FusedBatchNormV3', 'Pack', 'StridedSlice', 'Transpose', 'Unpack'),
    ]
)
# What is in memory anyway, or takes none.
_NOT_KEPT = frozenset(['Const', 'Enter', 'ReadVariableOp', 'TPUReplicatedInput', 'VarHandleOp'])

_TILE = (8, 128)
_INFEED = 'InfeedDequeueTuple'


class Activations(NamedTuple):
    """Bytes of activations, as a TPU lays them out, and without padding."""

    padded: int
    unpadded: int


class VariableBytes(NamedTuple):
    """Bytes of the variables that each core holds.

    Attributes:
      parameter_count: number of the trainable parameters.
      parameters: of the trainable variables.
      optimizer: of the optimizer's state.
      averages: of the averages of the weights.
      others: of the moving statistics of batch normalization and the global step.
    """

    parameter_count: int
    parameters: int
    optimizer: int
    averages: int
    others: int

    @property
    def total(self) -> int:
        """Of all variables."""
        return self.parameters + self.optimizer + self.averages + self.others


def variable_bytes(graph: tf.Graph) -> VariableBytes:
    """Counts the variables of a graph."""
    trainable = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    owners = {variable.op.name for variable in trainable}
    sizes = {'parameters': 0, 'optimizer': 0, 'averages': 0, 'others': 0}
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        owner, _, slot = variable.op.name.rpartition('/')
        if variable.op.name in owners:
            kind = 'parameters'
        elif slot == _AVERAGE:
            kind = 'averages'
        else:
            kind = 'optimizer' if owner in owners else 'others'
        sizes[kind] += variable.shape.num_elements() * variable.dtype.base_dtype.size
    return VariableBytes(sum(variable.shape.num_elements() for variable in trainable), **sizes)


def kept_for_backward(operations: Iterable[tf.Operation]) -> Set[tf.Tensor]:
    """The tensors of a training step that stay from the forward to the backward pass.

    Without padding, they take 59.6 MB per image at 299 pixels in float32, and 29.8 MB in bfloat16. What XLA assigns to
    the temporaries of the same step on a CPU, `--xla_dump_to`, grows from batches of 8 to 24 by 59.8 MB and 37.0 MB per
    image; a CPU's convolutions of bfloat16 are in float32.

    Args:
      operations: of a core.
    """
    waiting: List[Tuple[tf.Tensor, str]] = [
        (tensor, operation.type)
        for operation in operations
        if _is_backward(operation) and operation.type not in _SHAPE_READERS
        for tensor in operation.inputs
        if not _is_backward(tensor.op)
    ]
    kept: Set[tf.Tensor] = set()
    sums: Set[tf.Tensor] = set()
    seen: Set[Tuple[tf.Tensor, bool]] = set()
    while waiting:
        tensor, reader = waiting.pop()
        windowed = reader in _WINDOWED
        if (tensor, windowed) in seen or tensor.op.type in _NOT_KEPT:
            continue
        seen.add((tensor, windowed))
        if not windowed and _is_sum(tensor):
            sums.add(tensor)
        elif not windowed and _is_recomputed(tensor):
            waiting += [(source, tensor.op.type) for source in tensor.op.inputs]
        else:
            kept.add(tensor)
    # A sum takes less room than what it is of, unless that stays anyway.
    return kept | {tensor for tensor in sums if not _sources(tensor) <= kept}


def _is_sum(tensor: tf.Tensor) -> bool:
    """Whether a tensor is a sum of two like it."""
    return tensor.op.type == 'AddV2' and all(source.shape == tensor.shape for source in tensor.op.inputs)


def _sources(tensor: tf.Tensor) -> Set[tf.Tensor]:
    """What has to be in memory for a tensor to be computed again."""
    sources: Set[tf.Tensor] = set()
    seen, waiting = {tensor}, [tensor]
    while waiting:
        new = {*waiting.pop().op.inputs} - seen
        seen |= new
        recomputed = {source for source in new if _is_recomputed(source)}
        waiting += recomputed
        sources |= {source for source in new - recomputed if source.op.type not in _NOT_KEPT}
    return sources


def _is_backward(operation: tf.Operation) -> bool:
    return bool(_BACKWARD.search(operation.name))


def _is_recomputed(tensor: tf.Tensor) -> bool:
    """Whether the backward pass computes a tensor again, instead of finding it in memory."""
    operation = tensor.op
    if operation.type == 'FusedBatchNormV3':
        # What is normalized, not the moments.
        return tensor.value_index == 0
    if operation.type == 'Cast' and operation.inputs[0].dtype.size > tensor.dtype.size:
        # Of what has to stay, the shorter type takes less room.
        return operation.inputs[0].op.type in _NOT_KEPT or _is_recomputed(operation.inputs[0])
    return operation.type in _RECOMPUTED


def padded_size_of(tensor: tf.Tensor) -> Optional[int]:
    """The bytes of a tensor as a TPU lays it out; None if its shape is not known.

    https://cloud.google.com/tpu/docs/performance-guide, on tiling: the sizes that matter are those of the batch and of
    the features, which are the first and the last axis, or the last two of a transposed image.
    """
    size = size_of(tensor)
    shape = tensor.shape.as_list() if size is not None else []
    if len(shape) < 2 or not size:
        return size
    first, last = shape[0], shape[-1]
    padded = min(_up(first, a) * _up(last, b) for a, b in (_TILE, _TILE[::-1]))
    return size // (first * last) * padded


def _up(count: int, multiple: int) -> int:
    return math.ceil(count / multiple) * multiple


def activations(operations: Iterable[tf.Operation], is_training: bool) -> Activations:
    """Estimates what the activations of a step take, as `ESTIMATE` says.

    Args:
      operations: of a core.
      is_training: a training step, else a step of evaluation.
    """
    operations = [*operations]
    infeed = {t for operation in operations if operation.type == _INFEED for t in operation.outputs}
    if is_training:
        return _sum_of(infeed | kept_for_backward(operations))
    used = [{t for t in [*o.inputs, *o.outputs] if t.op.type not in _NOT_KEPT} for o in operations if o.type != _INFEED]
    return max(_sum_of(infeed | tensors) for tensors in used)


def _sum_of(tensors: Iterable[tf.Tensor]) -> Activations:
    tensors = [*tensors]
    return Activations(sum(padded_size_of(t) or 0 for t in tensors), sum(size_of(t) or 0 for t in tensors))
