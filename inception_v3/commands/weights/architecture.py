"""Layers of the networks that other frameworks publish, with names and axes there, derived from our tables."""

from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from console.errors import CommandError
from console.messages import shown
from inception_v3.networks import inception_v3, resnet
from inception_v3.networks.inception_v3 import AveragePool, Conv, Fork, MaxPool, Mixed
from inception_v3.networks.layers import scaled_depth

# At 299 x 299 pixels, the second convolution of the auxiliary head has this kernel; a smaller input has a smaller one.
AUXILIARY_KERNEL = (5, 5)
# The number of layers that Keras has for a row of our tables: convolution, normalization and ReLU; or one.
_KERAS_LAYERS = {MaxPool: 1, AveragePool: 1, Conv: 3, Fork: 4}
# PyTorch's names of the branches of a block of Inception v3, by the first letters of its scope.
_BRANCHES: Dict[str, Sequence[str]] = {
    'Mixed_5': ('branch1x1', 'branch5x5', 'branch3x3dbl', 'branch_pool'),
    'Mixed_6a': ('branch3x3', 'branch3x3dbl'),
    'Mixed_6': ('branch1x1', 'branch7x7', 'branch7x7dbl', 'branch_pool'),
    'Mixed_7a': ('branch3x3', 'branch7x7x3'),
    'Mixed_7': ('branch1x1', 'branch3x3', 'branch3x3dbl', 'branch_pool'),
}
Values = Dict[str, np.ndarray]
_NAMED_AT_MOST = 3
# PyTorch's last parts of the names of variables.
TORCH_NAMES = {
    **{'weights': 'weight', 'biases': 'bias'},
    **{'beta': 'bias', 'gamma': 'weight', 'moving_mean': 'running_mean', 'moving_variance': 'running_var'},
}


class Layer(NamedTuple):
    """A convolution with batch normalization, or a classifier.

    Attributes:
      scope: the scope of its variables in this program.
      shape: height, width, input channels and output channels of its kernel; a classifier has 0 output channels,
        because its number of classes is that of the data set.
      conv: the name of the convolution, or of the classifier, in PyTorch.
      norm: the name of the normalization in PyTorch; empty for a classifier.
      order: sorts layers as Keras lists them: by the distance to the output, and then as we do.
    """

    scope: str
    shape: Tuple[int, int, int, int]
    conv: str
    norm: str = ''
    order: Tuple[int, int, int] = (0, 0, 0)

    @property
    def is_classifier(self) -> bool:
        """Whether this is a classifier: biases, and no normalization."""
        return not self.norm


class Architecture(NamedTuple):
    """The layers of a network.

    Attributes:
      name: the name that `--network` has.
      scope: the outermost scope of its variables.
      classifier: the scope of the classifier's layer.
      has_scales: whether its normalization has scales.
      layers: all layers; those of the auxiliary head last.
    """

    name: str
    scope: str
    classifier: str
    has_scales: bool
    layers: List[Layer]

    @property
    def auxiliary(self) -> str:
        """The scope of the auxiliary head, with a slash at the end."""
        return f'{self.scope}/AuxLogits/'

    def of(self, auxiliary_head: bool, classifier: bool = True) -> List[Layer]:
        """The layers of a network with or without its auxiliary head and its classifier."""
        return [
            layer
            for layer in self.layers
            if (auxiliary_head or not layer.scope.startswith(self.auxiliary))
            and (classifier or layer.scope != self.classifier)
        ]


def variables_of(layer: Layer, has_scales: bool) -> Dict[str, Tuple[int, ...]]:
    """The shapes of a layer's variables, by name."""
    depth = layer.shape[-1:]
    shapes: Dict[str, Tuple[int, ...]] = {f'{layer.scope}/weights': layer.shape}
    if layer.is_classifier:
        return {**shapes, f'{layer.scope}/biases': depth}
    names = ['beta', 'moving_mean', 'moving_variance', *(['gamma'] if has_scales else [])]
    return {**shapes, **{f'{layer.scope}/BatchNorm/{name}': depth for name in names}}


def inception(depth_multiplier: float = 1.0, auxiliary_kernel: Tuple[int, int] = AUXILIARY_KERNEL) -> Architecture:
    """The layers of Inception v3."""
    layers = [*_of_inception(depth_multiplier, auxiliary_kernel)]
    return Architecture('inception_v3', 'InceptionV3', 'InceptionV3/Logits/Conv2d_1c_1x1', False, layers)


def _of_inception(multiplier: float, auxiliary_kernel: Tuple[int, int]) -> Iterator[Layer]:
    channels, at_auxiliary = 3, 0
    for place, row in enumerate(inception_v3.STEM):
        if isinstance(row, Conv):
            yield _conv('InceptionV3', row.scope, channels, row, multiplier, (place, 0, 0))
            channels = scaled_depth(row.depth, multiplier)
    blocks = (*inception_v3.MIXED_35, *inception_v3.MIXED_17, *inception_v3.MIXED_8)
    for place, block in enumerate(blocks, len(inception_v3.STEM)):
        outputs = 0
        for number in range(len(block.branches)):
            branch, depth = _of_branch(block, number, channels, place, multiplier)
            outputs += depth
            yield from branch
        channels = outputs
        if block is inception_v3.MIXED_17[-1]:
            at_auxiliary = channels
    yield Layer('InceptionV3/Logits/Conv2d_1c_1x1', (1, 1, channels, 0), 'fc')
    scope = 'InceptionV3/AuxLogits'
    first = _conv(scope, 'AuxLogits.conv0', at_auxiliary, Conv('1b', 128, (1, 1)), multiplier)
    second = _conv(scope, 'AuxLogits.conv1', first.shape[-1], Conv('2a', 768, auxiliary_kernel), multiplier)
    yield from (first, second, Layer(f'{scope}/Conv2d_2b_1x1', (1, 1, second.shape[-1], 0), 'AuxLogits.fc'))


def _of_branch(block: Mixed, number: int, channels: int, place: int, multiplier: float) -> Tuple[List[Layer], int]:
    """The layers of a branch, and the channels of its output."""
    rows = block.branches[number]
    names = next(names for begin, names in _BRANCHES.items() if block.scope.startswith(begin))
    convs = [row for row in rows if isinstance(row, (Conv, Fork))]
    layers = []
    for count, row in enumerate(convs, 1):
        # Numbers follow if a branch has several convolutions.
        torch = f'{block.scope}.{names[number]}' + (f'_{count}' if len(convs) > 1 else '')
        distance = sum(_KERAS_LAYERS[type(after)] for after in rows[rows.index(row) + 1 :])
        order = (place, -distance - isinstance(row, Fork), number)
        scope = f'InceptionV3/{block.scope}/Branch_{number}'
        parts = [*zip(row.convs, 'ab')] if isinstance(row, Fork) else [(row, '')]
        own = [_conv(scope, torch + letter, channels, conv, multiplier, order) for conv, letter in parts]
        layers += own
        channels = sum(layer.shape[-1] for layer in own)
    return layers, channels


def _conv(
    scope: str, torch: str, channels: int, row: Conv, multiplier: float, order: Tuple[int, int, int] = (0, 0, 0)
) -> Layer:
    shape = (*row.kernel, channels, scaled_depth(row.depth, multiplier))
    return Layer(f'{scope}/{row.scope}', shape, f'{torch}.conv', f'{torch}.bn', order)


def resnet50(depth_multiplier: float = 1.0) -> Architecture:
    """The layers of ResNet-50."""
    layers = []

    def add(scope: str, conv: str, norm: str, window: int, channels: int, depth: int) -> int:
        depth = scaled_depth(depth, depth_multiplier)
        layers.append(Layer(f'ResNet50/{scope}', (window, window, channels, depth), conv, norm))
        return depth

    channels = add('stem', 'conv1', 'bn1', 7, 3, 64)
    for number, stage in enumerate(resnet.STAGES, 1):
        for block in range(stage.blocks):
            scope, name = f'stage_{number}/block_{block + 1}', f'layer{number}.{block}'
            wide = stage.depth * resnet.EXPANSION
            if block == 0:
                add(f'{scope}/shortcut', f'{name}.downsample.0', f'{name}.downsample.1', 1, channels, wide)
            for place, (window, depth) in enumerate(((1, stage.depth), (3, stage.depth), (1, wide)), 1):
                names = (f'{name}.conv{place}', f'{name}.bn{place}')
                channels = add(f'{scope}/conv_{place}', *names, window, channels, depth)
    layers.append(Layer('ResNet50/logits', (1, 1, channels, 0), 'fc'))
    return Architecture('resnet50', 'ResNet50', 'ResNet50/logits', True, layers)


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
