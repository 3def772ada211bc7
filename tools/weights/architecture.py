"""Layers of the networks that other frameworks publish, with the names and axes of their variables there.

A framework is a table of `Entry`: our name of a variable, theirs, and the order of the axes. All tables follow from the
tables of the networks.
"""

from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from compat.messages import listed
from inception_v3.networks import inception_v3, resnet
from inception_v3.networks.inception_v3 import AveragePool, Conv, Fork, MaxPool
from inception_v3.networks.layers import scaled_depth
from inception_v3.weights.sources import WeightsError

Values = Dict[str, np.ndarray]
# At 299 x 299 pixels, the second convolution of the auxiliary head has this kernel; a smaller input has a smaller one.
AUXILIARY_KERNEL = (5, 5)
# The number of Keras layers for a row of our tables: convolution, normalization and ReLU; or one.
_KERAS_LAYERS = {MaxPool: 1, AveragePool: 1, Conv: 3, Fork: 4}
# PyTorch's names of the branches of a block of Inception v3, by the first letters of its scope.
_BRANCHES: Dict[str, Sequence[str]] = {
    'Mixed_5': ('branch1x1', 'branch5x5', 'branch3x3dbl', 'branch_pool'),
    'Mixed_6a': ('branch3x3', 'branch3x3dbl'),
    'Mixed_6': ('branch1x1', 'branch7x7', 'branch7x7dbl', 'branch_pool'),
    'Mixed_7a': ('branch3x3', 'branch7x7x3'),
    'Mixed_7': ('branch1x1', 'branch3x3', 'branch3x3dbl', 'branch_pool'),
}
# The last parts of the names of variables in PyTorch.
_TORCH_NAMES = {
    **{'weights': 'weight', 'biases': 'bias'},
    **{'beta': 'bias', 'gamma': 'weight', 'moving_mean': 'running_mean', 'moving_variance': 'running_var'},
}


class Layer(NamedTuple):
    """A convolution with batch normalization, or a classifier, with the names of its parts in PyTorch.

    `shape` is the kernel's: height, width, input and output channels; a classifier has 0 output channels, because the
    number of classes depends on the data set. `order` sorts layers as Keras lists them: by the distance to the output,
    and then in our order.
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
    """The layers of a network, with the auxiliary head last; its outermost scope, and its classifier's scope.

    `has_scales`: whether its normalization has scales.
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
    names = ['biases'] if layer.is_classifier else ['BatchNorm/beta', 'BatchNorm/moving_mean']
    names += [] if layer.is_classifier else ['BatchNorm/moving_variance', *(['BatchNorm/gamma'] if has_scales else [])]
    return {f'{layer.scope}/weights': layer.shape, **{f'{layer.scope}/{name}': layer.shape[-1:] for name in names}}


def inception(depth_multiplier: float = 1.0, auxiliary_kernel: Tuple[int, int] = AUXILIARY_KERNEL) -> Architecture:
    """The layers of Inception v3."""
    layers: List[Layer] = []

    def conv(scope: str, torch: str, channels: int, row: Conv, order: Tuple[int, int, int] = (0, 0, 0)) -> int:
        shape = (*row.kernel, channels, scaled_depth(row.depth, depth_multiplier))
        layers.append(Layer(f'InceptionV3/{scope}{row.scope}', shape, f'{torch}.conv', f'{torch}.bn', order))
        return shape[-1]

    channels, at_auxiliary = 3, 0
    for place, row in enumerate(inception_v3.STEM):
        if isinstance(row, Conv):
            channels = conv('', row.scope, channels, row, (place, 0, 0))
    blocks = (*inception_v3.MIXED_35, *inception_v3.MIXED_17, *inception_v3.MIXED_8)
    for place, block in enumerate(blocks, len(inception_v3.STEM)):
        names = next(names for begin, names in _BRANCHES.items() if block.scope.startswith(begin))
        outputs = 0
        for number, rows in enumerate(block.branches):
            depth, count = channels, 0
            is_alone = sum(isinstance(row, (Conv, Fork)) for row in rows) == 1
            for at, row in enumerate(rows):
                if isinstance(row, (Conv, Fork)):
                    count += 1
                    torch = f'{block.scope}.{names[number]}' + ('' if is_alone else f'_{count}')
                    distance = sum(_KERAS_LAYERS[type(after)] for after in rows[at + 1 :])
                    order = (place, -distance - isinstance(row, Fork), number)
                    scope = f'{block.scope}/Branch_{number}/'
                    parts = zip(row.convs, 'ab') if isinstance(row, Fork) else [(row, '')]
                    depth = sum([conv(scope, torch + letter, depth, part, order) for part, letter in parts])
            outputs += depth
        channels = outputs
        at_auxiliary = channels if block is inception_v3.MIXED_17[-1] else at_auxiliary
    classifier = 'InceptionV3/Logits/Conv2d_1c_1x1'
    layers.append(Layer(classifier, (1, 1, channels, 0), 'fc'))
    depth = conv('AuxLogits/', 'AuxLogits.conv0', at_auxiliary, Conv('1b', 128, (1, 1)))
    depth = conv('AuxLogits/', 'AuxLogits.conv1', depth, Conv('2a', 768, auxiliary_kernel))
    layers.append(Layer('InceptionV3/AuxLogits/Conv2d_2b_1x1', (1, 1, depth, 0), 'AuxLogits.fc'))
    return Architecture('inception_v3', 'InceptionV3', classifier, False, layers)


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


class Entry(NamedTuple):
    """A variable by its name in this program and in the other framework, where it may be optional.

    The shape is ours, with 0 for the number of classes. `axes` are the axes of this shape in the order of the other
    framework, without axes of size 1 that a matrix lacks.
    """

    ours: str
    theirs: str
    shape: Tuple[int, ...]
    axes: Tuple[int, ...]
    is_optional: bool

    def from_ours(self, array: np.ndarray) -> np.ndarray:
        """The array in the other framework."""
        return array.transpose([*self._left_out, *self.axes]).reshape([array.shape[axis] for axis in self.axes])

    def to_ours(self, array: np.ndarray) -> np.ndarray:
        """The array in this program."""
        whole = array.reshape([1] * len(self._left_out) + [*array.shape])
        return whole.transpose(np.argsort([*self._left_out, *self.axes]))

    @property
    def _left_out(self) -> List[int]:
        return [axis for axis in range(len(self.shape)) if axis not in self.axes]


# Kernels are [height, width, inputs, outputs] here and in Keras, [outputs, inputs, height, width] in PyTorch.
# Classifiers are convolutions here, and matrices there: [inputs, outputs] in Keras, [outputs, inputs] in PyTorch.
_KERNEL, KERAS_MATRIX = (0, 1, 2, 3), (2, 3)
TORCH_KERNEL, TORCH_MATRIX = (3, 2, 0, 1), (3, 2)


def entries_of(
    layers: Iterable[Layer],
    has_scales: bool,
    name_of: Callable[[Layer, str], str],
    kernel: Tuple[int, ...] = _KERNEL,
    matrix: Tuple[int, ...] = _KERNEL,
) -> List[Entry]:
    """The entries of layers, for given axes of kernels and classifiers, and a function that gives their names.

    The arguments of the function are a layer and the last part of our name, such as `moving_mean`. If the network has
    no scales, another framework may still have them; then they are optional.
    """
    return [
        Entry(
            name,
            name_of(layer, name.rpartition('/')[2]),
            shape,
            (0,) if len(shape) == 1 else matrix if layer.is_classifier else kernel,
            name.endswith('/gamma') and not has_scales,
        )
        for layer in layers
        for name, shape in variables_of(layer, has_scales=True).items()
    ]


def of_ours(layers: Iterable[Layer], has_scales: bool) -> List[Entry]:
    """The entries of weights with the names of this program, which are also TF-Slim's."""
    return [entry._replace(theirs=entry.ours) for entry in entries_of(layers, has_scales, lambda layer, last: '')]


def of_torch(layers: Iterable[Layer], has_scales: bool) -> List[Entry]:
    """The entries of weights with the names of torchvision and timm."""

    def name_of(layer: Layer, last: str) -> str:
        return f'{layer.conv if last in ("weights", "biases") else layer.norm}.{_TORCH_NAMES[last]}'

    return entries_of(layers, has_scales, name_of, TORCH_KERNEL, TORCH_MATRIX)


def of_keras(layers: Sequence[Layer], by_order: bool) -> List[Entry]:
    """The entries of weights of Keras, whose layers are numbered by `Layer.order` or in the order of our table."""
    convs = [layer for layer in layers if not layer.is_classifier]
    numbered = sorted(convs, key=lambda layer: layer.order) if by_order else convs
    numbers = {layer.scope: number for number, layer in enumerate(numbered)}

    def name_of(layer: Layer, last: str) -> str:
        if layer.is_classifier:
            return f'dense_0/{"kernel" if last == "weights" else "bias"}'
        number = numbers[layer.scope]
        return f'conv2d_{number}/kernel' if last == 'weights' else f'batch_normalization_{number}/{last}'

    return entries_of(layers, False, name_of, matrix=KERAS_MATRIX)


def to_ours(arrays: Mapping[str, np.ndarray], entries: Sequence[Entry], path: str) -> Values:
    """Converts arrays of another framework to float32 arrays by our names.

    Raises:
      WeightsError: a variable is missing, is not an array of finite floating-point numbers, or has another shape.
    """
    problems = []
    values: Values = {}
    for entry in entries:
        array = arrays.get(entry.theirs)
        if array is None:
            problems += [] if entry.is_optional else [f'{entry.theirs} is missing']
            continue
        wanted = [entry.shape[axis] for axis in entry.axes]
        if len(wanted) != array.ndim or any(size not in (0, own) for size, own in zip(wanted, array.shape)):
            text = ', '.join(str(size or 'classes') for size in wanted)
            problems.append(f'{entry.theirs} has the shape {[*array.shape]}, not [{text}]')
        elif array.dtype.kind != 'f':
            problems.append(f'{entry.theirs} is of the type {array.dtype}, not float32')
        else:
            with np.errstate(over='ignore'):
                values[entry.ours] = np.ascontiguousarray(entry.to_ours(array), dtype=np.float32)
            if not np.isfinite(values[entry.ours]).all():
                problems.append(f'{entry.theirs} has values that are not finite')
    if problems:
        raise WeightsError(f'{path}: does not fit the network: {listed(problems)}.')
    return values


def from_ours(values: Mapping[str, np.ndarray], entries: Iterable[Entry]) -> Values:
    """Converts our values to arrays of another framework; missing scales become 1."""
    return {
        entry.theirs: np.ascontiguousarray(
            entry.from_ours(values[entry.ours]) if entry.ours in values else np.ones(entry.shape, np.float32)
        )
        for entry in entries
    }
