"""Layers of the networks whose weights other frameworks publish, with the names there, derived from our tables."""

from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from inception_v3.networks import inception_v3, resnet
from inception_v3.networks.inception_v3 import AveragePool, Branch, Conv, Fork, MaxPool, Mixed
from inception_v3.networks.layers import scaled_depth

# Channels of the images.
_COLOURS = 3
# At 299 x 299 pixels, the second convolution of the auxiliary head has this kernel; a smaller input has a smaller one.
AUXILIARY_KERNEL = (5, 5)
# The layers that Keras has for a row of our tables: convolution, normalization and ReLU; or one.
_LAYERS_OF_CONV = 3


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
    norm: str
    order: Tuple[int, ...] = ()

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


# PyTorch's names of the branches of a block of Inception v3, by the first letters of its scope.
_BRANCHES: Dict[str, Sequence[str]] = {
    'Mixed_5': ('branch1x1', 'branch5x5', 'branch3x3dbl', 'branch_pool'),
    'Mixed_6a': ('branch3x3', 'branch3x3dbl'),
    'Mixed_6': ('branch1x1', 'branch7x7', 'branch7x7dbl', 'branch_pool'),
    'Mixed_7a': ('branch3x3', 'branch7x7x3'),
    'Mixed_7': ('branch1x1', 'branch3x3', 'branch3x3dbl', 'branch_pool'),
}


class _Inception:
    """Walks the tables of Inception v3, and counts channels."""

    def __init__(self, depth_multiplier: float):
        self._depth_multiplier = depth_multiplier

    def conv(self, scope: str, torch: str, channels: int, row: Conv, order: Tuple[int, ...]) -> Layer:
        own = row.name or f'Conv2d_{row.place}_{row.kernel[0]}x{row.kernel[1]}'
        depth = scaled_depth(row.depth, self._depth_multiplier)
        name = torch or own
        return Layer(f'{scope}/{own}', (*row.kernel, channels, depth), f'{name}.conv', f'{name}.bn', order)

    def branch(self, block: Mixed, number: int, channels: int, place: int) -> Iterator[Layer]:
        """The layers of a branch; the last ones that are yielded have its output channels."""
        rows = block.branches[number]
        names = next(names for begin, names in _BRANCHES.items() if block.scope.startswith(begin))
        # Numbers follow if a branch has several convolutions.
        convs = [row for row in rows if not isinstance(row, (MaxPool, AveragePool))]
        distance = _distance(rows)
        count = 0
        for row in rows:
            distance -= _distance([row])
            if isinstance(row, (MaxPool, AveragePool)):
                continue
            count += 1
            torch = f'{block.scope}.{names[number]}' + (f'_{count}' if len(convs) > 1 else '')
            parts = zip(row.convs, 'ab') if isinstance(row, Fork) else [(row, '')]
            depth = 0
            for conv, letter in parts:
                order = (place, -distance - isinstance(row, Fork), number)
                scope = f'InceptionV3/{block.scope}/Branch_{number}'
                layer = self.conv(scope, torch + letter, channels, conv, order)
                depth += layer.shape[-1]
                yield layer
            channels = depth

    def layers(self, auxiliary_kernel: Tuple[int, int]) -> Iterator[Layer]:
        channels, at_auxiliary = _COLOURS, 0
        for place, row in enumerate(inception_v3.STEM):
            if isinstance(row, Conv):
                layer = self.conv('InceptionV3', '', channels, row, (place,))
                channels = layer.shape[-1]
                yield layer
        blocks = (*inception_v3.MIXED_35, *inception_v3.MIXED_17, *inception_v3.MIXED_8)
        for place, block in enumerate(blocks, len(inception_v3.STEM)):
            outputs = 0
            for number, rows in enumerate(block.branches):
                found = [*self.branch(block, number, channels, place)]
                last = len(rows[-1].convs) if isinstance(rows[-1], Fork) else 1
                # A branch of pooling alone keeps the channels.
                outputs += sum(layer.shape[-1] for layer in found[-last:]) if found else channels
                yield from found
            channels = outputs
            if block is inception_v3.MIXED_17[-1]:
                at_auxiliary = channels
        place = len(inception_v3.STEM) + len(blocks)
        yield Layer('InceptionV3/Logits/Conv2d_1c_1x1', (1, 1, channels, 0), 'fc', '', (place,))
        scope = 'InceptionV3/AuxLogits'
        first = self.conv(scope, 'AuxLogits.conv0', at_auxiliary, Conv('1b', 128, (1, 1)), ())
        second = self.conv(scope, 'AuxLogits.conv1', first.shape[-1], Conv('2a', 768, auxiliary_kernel), ())
        yield from (first, second)
        yield Layer(f'{scope}/Conv2d_2b_1x1', (1, 1, second.shape[-1], 0), 'AuxLogits.fc', '')


def _distance(rows: Branch) -> int:
    """The number of layers that Keras has for rows of a branch."""
    own = {MaxPool: 1, AveragePool: 1, Fork: _LAYERS_OF_CONV + 1, Conv: _LAYERS_OF_CONV}
    return sum(own[type(row)] for row in rows)


def inception(depth_multiplier: float = 1.0, auxiliary_kernel: Tuple[int, int] = AUXILIARY_KERNEL) -> Architecture:
    """The layers of Inception v3."""
    layers = [*_Inception(depth_multiplier).layers(auxiliary_kernel)]
    return Architecture('inception_v3', 'InceptionV3', 'InceptionV3/Logits/Conv2d_1c_1x1', False, layers)


def resnet50(depth_multiplier: float = 1.0) -> Architecture:
    """The layers of ResNet-50."""
    layers = []

    def add(scope: str, conv: str, norm: str, window: int, channels: int, depth: int) -> int:
        depth = scaled_depth(depth, depth_multiplier)
        layers.append(Layer(f'ResNet50/{scope}', (window, window, channels, depth), conv, norm))
        return depth

    channels = add('stem', 'conv1', 'bn1', 7, _COLOURS, 64)
    for number, stage in enumerate(resnet.STAGES, 1):
        for block in range(stage.blocks):
            scope, name = f'stage_{number}/block_{block + 1}', f'layer{number}.{block}'
            if block == 0:
                shortcut = (f'{name}.downsample.0', f'{name}.downsample.1')
                add(f'{scope}/shortcut', *shortcut, 1, channels, stage.depth * resnet.EXPANSION)
            depths = ((1, stage.depth), (3, stage.depth), (1, stage.depth * resnet.EXPANSION))
            for place, (window, depth) in enumerate(depths, 1):
                names = (f'{name}.conv{place}', f'{name}.bn{place}')
                channels = add(f'{scope}/conv_{place}', *names, window, channels, depth)
    layers.append(Layer('ResNet50/logits', (1, 1, channels, 0), 'fc', ''))
    return Architecture('resnet50', 'ResNet50', 'ResNet50/logits', True, layers)
