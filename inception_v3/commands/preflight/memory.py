"""Memory of a TPU core: counts the bytes of variables, and estimates the bytes of activations, from the graph."""

import math
import re
from typing import Iterable, List, NamedTuple, Optional, Set, Tuple

from console.tensorflow_versions import tf
from inception_v3.commands.preflight.graphs import size_of

ESTIMATE = (
    'The activations are the tensors that the backward pass reads, with their padding: a TPU pads the first and the '
    'last axis, one to a multiple of 128 and the other to a multiple of 8; the estimate takes the smaller. Results '
    'of element-wise operations and concatenations are not kept: XLA fuses and recomputes them (except inputs of max '
    'pooling). The infeed counts once. For evaluation, the activations are the largest inputs and outputs of one '
    'operation. Not included: gradients and scratch space, which reuse the memory of freed activations; fragmentation; '
    'the recomputation and other layouts that the compiler chooses when memory is short. An estimate above the memory '
    'is an error; one below it is no promise that the step fits.'
)

_BACKWARD = re.compile(r'(^|/)gradients(_\d+)?/')
_AVERAGE = 'ExponentialMovingAverage'
# Operations that read only shapes, not values.
_SHAPE_READERS = frozenset(['Shape', 'ShapeN', 'Size', 'Rank', 'ZerosLike', 'OnesLike', 'ConcatOffset'])
# Operations that read windows of their input, so that XLA cannot fuse them with its producer.
_WINDOWED = frozenset(['MaxPoolGrad', 'MaxPoolGradV2'])
# Operations that XLA fuses with their consumers.
_RECOMPUTED = re.compile(
    'Add|AddV2|BiasAdd|Mul|Neg|RealDiv|Round|Rsqrt|Sqrt|Square|SquaredDifference|Sub|Cast|GreaterEqual|Maximum|Minimum|'
    'Relu|Relu6|Select|SelectV2|ConcatV2|ExpandDims|Identity|IdentityN|Reshape|Slice|Split|SplitV|Squeeze|'
    'FusedBatchNormV3|Pack|StridedSlice|Transpose|Unpack'
)
# Operations whose output is in memory anyway, or needs no memory.
_NOT_KEPT = frozenset(['Const', 'Enter', 'ReadVariableOp', 'TPUReplicatedInput', 'VarHandleOp'])

_TILE = (8, 128)
_INFEED = 'InfeedDequeueTuple'


class Activations(NamedTuple):
    """Bytes of activations: padded as a TPU stores them, and without padding."""

    padded: int
    unpadded: int


class VariableBytes(NamedTuple):
    """The number of trainable parameters, and the bytes of the variables that each core holds, by purpose.

    `others` are the moving statistics of batch normalization and the global step.
    """

    parameter_count: int
    parameters: int
    optimizer: int
    averages: int
    others: int

    @property
    def total(self) -> int:
        """Bytes of all variables."""
        return self.parameters + self.optimizer + self.averages + self.others


def variable_bytes(graph: tf.Graph) -> VariableBytes:
    """Counts the bytes of a graph's variables."""
    trainable = graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
    owners = {variable.op.name for variable in trainable}
    sizes = {'parameters': 0, 'optimizer': 0, 'averages': 0, 'others': 0}
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
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
    """Returns the tensors of a training step that stay in memory from the forward to the backward pass.

    Without padding, Inception v3 at 299 pixels keeps 59.6 MB per image in float32. XLA's own temporaries of the same
    step on a CPU (from `--xla_dump_to`) grow by 59.8 MB per image between batches of 8 and 24.
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
    # A sum is smaller than its terms, and is kept instead of them unless they are kept anyway.
    return kept | {tensor for tensor in sums if not _sources(tensor) <= kept}


def _is_sum(tensor: tf.Tensor) -> bool:
    """Whether a tensor is the sum of two tensors of its shape."""
    return tensor.op.type == 'AddV2' and all(source.shape == tensor.shape for source in tensor.op.inputs)


def _sources(tensor: tf.Tensor) -> Set[tf.Tensor]:
    """Returns the tensors that must be in memory to recompute a tensor."""
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
    """Whether the backward pass recomputes a tensor instead of reading it from memory."""
    operation = tensor.op
    if operation.type == 'FusedBatchNormV3':
        # The normalized output, not the moments.
        return tensor.value_index == 0
    if operation.type == 'Cast' and operation.inputs[0].dtype.size > tensor.dtype.size:
        # If the input of a narrowing cast would be kept, its smaller result is kept instead.
        return operation.inputs[0].op.type in _NOT_KEPT or _is_recomputed(operation.inputs[0])
    return bool(_RECOMPUTED.fullmatch(operation.type))


def padded_size_of(tensor: tf.Tensor) -> Optional[int]:
    """Returns the bytes of a tensor as a TPU stores it; None if its shape is unknown.

    Tiling pads the batch and the feature axes (https://cloud.google.com/tpu/docs/performance-guide): the first and the
    last axis, or the last two axes of a transposed image.
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
    """Estimates the memory of the activations of a core's step; `ESTIMATE` describes the method."""
    operations = [*operations]
    infeed = {t for operation in operations if operation.type == _INFEED for t in operation.outputs}
    if is_training:
        return _sum_of(infeed | kept_for_backward(operations))
    used = [{t for t in [*o.inputs, *o.outputs] if t.op.type not in _NOT_KEPT} for o in operations if o.type != _INFEED]
    return max(_sum_of(infeed | tensors) for tensors in used)


def _sum_of(tensors: Iterable[tf.Tensor]) -> Activations:
    tensors = [*tensors]
    return Activations(sum(padded_size_of(t) or 0 for t in tensors), sum(size_of(t) or 0 for t in tensors))
