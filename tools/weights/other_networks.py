"""Names networks that this program does not have, by the names and shapes of their variables, for messages."""

import re
from typing import Iterable, Mapping, Sequence, Tuple

import numpy as np

# PyTorch's names of variables, as parts of names; the first network all of whose patterns match is meant.
_OF_TORCH: Sequence[Tuple[str, Sequence[str]]] = (
    ('inception_v4', [r'features\.21\.branch1\.', r'features\.0\.conv\.weight']),
    ('inception_resnet_v2', [r'conv2d_1a\.conv\.weight', r'mixed_5b\.']),
    ('googlenet', [r'inception3a\.branch1\.']),
    ('densenet', [r'denseblock1\.denselayer1\.']),
    ('resnetv2', [r'stages\.0\.blocks\.0\.norm1\.', r'stem\.conv\.weight']),
    ('swin transformer', [r'relative_position_bias_table']),
    ('vision transformer', [r'(cls_token|class_token|position_embedding)', r'(attn|attention)']),
    ('convnext', [r'(stages\.0\.blocks\.0\.conv_dw|stages\.0\.blocks\.0\.gamma|layer_scale)']),
    ('efficientnet', [r'conv_stem\.weight|features\.0\.0\.weight', r'(conv_reduce|\.se\.|\.block\.\d\.fc1\.)']),
    ('mobilenet_v2', [r'features\.0\.0\.weight', r'features\.17\.conv\.']),
    ('mobilenet or efficientnet', [r'conv_stem\.weight', r'blocks\.0\.0\.']),
    ('mobilenet_v3', [r'features\.0\.0\.weight', r'features\.\d+\.block\.']),
    ('squeezenet', [r'features\.\d+\.squeeze\.']),
    ('shufflenet_v2', [r'stage2\.0\.branch1\.']),
    ('regnet', [r'trunk_output\.block1']),
    ('mnasnet', [r'layers\.8\.0\.layers\.']),
    ('xception', [r'block1\.rep\.']),
    ('vgg', [r'features\.2\.weight', r'classifier\.6\.weight', r'features\.1\d\.weight']),
    ('alexnet', [r'features\.3\.weight', r'classifier\.6\.weight']),
)
# Blocks of the four stages of ResNets, by whether a block has three convolutions.
_RESNETS: Mapping[Tuple[bool, Tuple[int, ...]], str] = {
    (False, (2, 2, 2, 2)): 'resnet18',
    (False, (3, 4, 6, 3)): 'resnet34',
    (True, (2, 2, 2, 2)): 'resnet26',
    (True, (3, 4, 6, 3)): 'resnet50',
    (True, (3, 4, 23, 3)): 'resnet101',
    (True, (3, 8, 36, 3)): 'resnet152',
}
# The outermost scopes of TensorFlow's networks.
_SCOPES = re.compile(
    r'(?:^|/)(InceptionV1|InceptionV2|InceptionV4|InceptionResnetV2|MobilenetV\d|resnet_v[12]_\d+|vgg_\w+|alexnet_v2|'
    r'NASNet|pnasnet\w*|efficientnet-[\w-]+|nasnet\w*|densenet\d+|xception_\d+)/'
)
# The numbers of convolutions, normalizations and dense layers of the networks of keras.applications.
_OF_KERAS: Mapping[Tuple[int, ...], str] = {
    (13, 0, 3): 'VGG16',
    (13, 0, 0): 'VGG16',
    (16, 0, 3): 'VGG19',
    (16, 0, 0): 'VGG19',
    (53, 53): 'ResNet50',
    (104, 104): 'ResNet101',
    (155, 155): 'ResNet152',
    (53, 49): 'ResNet50V2',
    (104, 100): 'ResNet101V2',
    (155, 151): 'ResNet152V2',
    (244, 244): 'InceptionResNetV2',
    (244, 204): 'InceptionResNetV2',
    (120, 121): 'DenseNet121',
    (168, 169): 'DenseNet169',
    (200, 201): 'DenseNet201',
}


def of_torch(shapes: Mapping[str, Sequence[int]]) -> str:
    """The name of a network with these variables in PyTorch; empty if it is unknown, or ResNet-50 itself."""
    resnet = _resnet(shapes)
    if resnet:
        return resnet
    text = '\n'.join(shapes)
    for network, patterns in _OF_TORCH:
        if all(re.search(pattern, text) for pattern in patterns):
            return network
    return ''


def _resnet(shapes: Mapping[str, Sequence[int]]) -> str:
    """The variant of a ResNet; empty if it is none, or the ResNet-50 of torchvision and timm."""
    matches = [re.search(r'(?:^|\.)layer(\d)\.(\d+)\.(conv\d)\.weight$', name) for name in shapes]
    blocks = {match.groups() for match in matches if match}
    counts = tuple(len({number for stage, number, _ in blocks if stage == str(own)}) for own in range(1, 5))
    if not all(counts):
        return ''
    is_deep = any(conv == 'conv3' for _, _, conv in blocks)
    name = _RESNETS.get((is_deep, counts), f'resnet of {", ".join(map(str, counts))} blocks')
    # Marks of variants, by the ends of names.
    ends = {
        'conv1.0.weight': f'{name}d (a deep stem)',
        'se.fc1.weight': f'se{name}',
        'se.conv.weight': f'eca{name}',
        'downsample.1.conv.weight': f'{name}t',
    }
    for end, variant in ends.items():
        if any(f'.{own}'.endswith(f'.{end}') for own in shapes):
            return variant
    first = next((shape for own, shape in shapes.items() if own.endswith('layer1.0.conv2.weight')), ())
    if len(first) == 4 and is_deep:
        outputs, inputs = first[:2]
        if inputs < outputs:
            kind = name.replace('resnet', 'resnext')
            return f'{kind}_{outputs // inputs}x{inputs}d' if inputs else name
        before = next((shape for own, shape in shapes.items() if own.endswith('layer1.0.conv3.weight')), ())
        if len(before) == 4 and inputs and before[0] // inputs == 2:
            return f'wide_{name}_2'
    return '' if name == 'resnet50' else name


def of_scopes(names: Iterable[str]) -> str:
    """The outermost scope of a known network of TensorFlow with these variables; empty if there is none."""
    found = {match.group(1) for match in map(_SCOPES.search, names) if match}
    return sorted(found)[0] if found else ''


def of_keras(numbers: Sequence[int]) -> str:
    """The network of keras.applications with so many convolutions, normalizations and dense layers; '' if unknown."""
    return _OF_KERAS.get((numbers[0], numbers[1], numbers[2]), _OF_KERAS.get((numbers[0], numbers[1]), ''))


def shapes_of(arrays: Mapping[str, np.ndarray]) -> Mapping[str, Sequence[int]]:
    """The shapes of arrays by name."""
    return {name: array.shape for name, array in arrays.items()}
