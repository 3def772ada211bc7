"""Names, shapes and axes of the same variables in this program, PyTorch and Keras."""

from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from console.errors import CommandError
from console.messages import shown
from inception_v3.commands.weights.architecture import Layer, variables_of

Values = Dict[str, np.ndarray]
_NAMED_AT_MOST = 3
# PyTorch's last parts of the names of variables.
TORCH_NAMES = {
    **{'weights': 'weight', 'biases': 'bias'},
    **{'beta': 'bias', 'gamma': 'weight', 'moving_mean': 'running_mean', 'moving_variance': 'running_var'},
}


class ShapeError(CommandError):
    """Weights that do not fit a network."""


class Order(NamedTuple):
    """The order of the axes of a variable in another framework: their number there, a conversion, and its inverse."""

    axes: int
    from_ours: Callable[[np.ndarray], np.ndarray]
    to_ours: Callable[[np.ndarray], np.ndarray]


# Kernels are [height, width, inputs, outputs] here and in Keras, [outputs, inputs, height, width] in PyTorch.
# Classifiers are convolutions here, and matrices there: [inputs, outputs] in Keras, [outputs, inputs] in PyTorch.
_VECTOR, _KERNEL = (Order(axes, lambda array: array, lambda array: array) for axes in (1, 4))
_TORCH_KERNEL = Order(4, lambda array: array.transpose(3, 2, 0, 1), lambda array: array.transpose(2, 3, 1, 0))
_TORCH_MATRIX = Order(2, lambda array: array[0, 0].T, lambda array: array.T[np.newaxis, np.newaxis])
_KERAS_MATRIX = Order(2, lambda array: array[0, 0], lambda array: array[np.newaxis, np.newaxis])


class Entry(NamedTuple):
    """A variable.

    Attributes:
      ours: its name in this program.
      theirs: its name in the other framework.
      shape: its shape in this program; 0 for the number of classes.
      order: of its axes in the other framework.
      is_optional: whether it may be missing.
    """

    ours: str
    theirs: str
    shape: Tuple[int, ...]
    order: Order
    is_optional: bool


def of_ours(layers: Iterable[Layer], has_scales: bool) -> List[Entry]:
    """The entries of weights with the names of this program, which are those of TF-Slim."""
    return _entries(layers, has_scales, lambda layer, last: '', _KERNEL, _KERNEL)


def of_torch(layers: Iterable[Layer], has_scales: bool) -> List[Entry]:
    """The entries of weights with the names of torchvision and timm."""

    def name_of(layer: Layer, last: str) -> str:
        return f'{layer.conv if last in ("weights", "biases") else layer.norm}.{TORCH_NAMES[last]}'

    return _entries(layers, has_scales, name_of, _TORCH_KERNEL, _TORCH_MATRIX)


def of_keras(layers: Sequence[Layer], by_order: bool) -> List[Entry]:
    """The entries of weights of Keras, whose layers are numbered by `Layer.order` or in the order of our table."""
    convs = [layer for layer in layers if not layer.is_classifier]
    listed = sorted(convs, key=lambda layer: layer.order) if by_order else convs
    numbers = {layer.scope: number for number, layer in enumerate(listed)}

    def name_of(layer: Layer, last: str) -> str:
        if layer.is_classifier:
            return f'dense/{"kernel" if last == "weights" else "bias"}'
        number = numbers[layer.scope]
        return f'conv2d_{number}/kernel' if last == 'weights' else f'batch_normalization_{number}/{last}'

    return _entries(layers, False, name_of, _KERNEL, _KERAS_MATRIX)


def _entries(
    layers: Iterable[Layer], has_scales: bool, name_of: Callable[[Layer, str], str], kernel: Order, matrix: Order
) -> List[Entry]:
    """The entries of layers. A network without scales may have them in another framework, where they are optional."""
    entries = []
    for layer in layers:
        for name, shape in variables_of(layer, has_scales=True).items():
            order = _VECTOR if len(shape) == 1 else matrix if layer.is_classifier else kernel
            last = name.rpartition('/')[2]
            theirs = name_of(layer, last) or name
            entries.append(Entry(name, theirs, shape, order, last == 'gamma' and not has_scales))
    return entries


def to_ours(arrays: Mapping[str, np.ndarray], entries: Sequence[Entry], path: str) -> Values:
    """Converts arrays of another framework to float32 arrays by our names.

    Raises:
      ShapeError: a variable is missing, is no array of finite floating-point numbers, or has another shape.
    """
    problems = []
    values: Values = {}
    for entry in entries:
        array = arrays.get(entry.theirs)
        if array is None:
            problems += [] if entry.is_optional else [f'{entry.theirs} is missing']
            continue
        fits = array.ndim == entry.order.axes and all(
            wanted in (size, 0) for size, wanted in zip(entry.order.to_ours(array).shape, entry.shape)
        )
        if not fits:
            wanted = entry.order.from_ours(np.empty(entry.shape, np.bool_)).shape
            text = ', '.join(str(size or 'classes') for size in wanted)
            problems.append(f'{entry.theirs} has the shape {[*array.shape]}, not [{text}]')
        elif array.dtype.kind != 'f':
            problems.append(f'{entry.theirs} is of the type {array.dtype}, not float32')
        else:
            with np.errstate(over='ignore'):
                values[entry.ours] = np.ascontiguousarray(entry.order.to_ours(array), dtype=np.float32)
            if not np.isfinite(values[entry.ours]).all():
                problems.append(f'{entry.theirs} has values that are not finite')
    if problems:
        raise ShapeError(f'{path}: does not fit the network: {listed(problems)}.')
    return values


def from_ours(values: Mapping[str, np.ndarray], entries: Iterable[Entry]) -> Values:
    """Converts our values to arrays of another framework; scales that are not there become 1."""
    return {
        entry.theirs: np.ascontiguousarray(
            entry.order.from_ours(values[entry.ours]) if entry.ours in values else np.ones(entry.shape, np.float32)
        )
        for entry in entries
    }


def listed(texts: Sequence[str]) -> str:
    """The first few of a list of texts, and the number of others."""
    more = len(texts) - _NAMED_AT_MOST
    return '; '.join(shown(text, 200) for text in texts[:_NAMED_AT_MOST]) + (f'; and {more} more' if more > 0 else '')
