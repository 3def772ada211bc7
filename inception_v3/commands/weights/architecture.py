"""Layers of the networks whose weights other frameworks publish, with the names there, derived from our tables."""

from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

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
