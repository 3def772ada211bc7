"""Finds networks of PyTorch in a state dict, whatever wraps them, and renames their tensors as torchvision does.

The same network has other names as a module of another, in a `Sequential` of its children, in Hugging Face's library,
and where the classifier was replaced.
"""

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from inception_v3.networks.inception_v3 import MIXED_8, MIXED_17, MIXED_35, STEM, Conv
from tools.weights.architecture import Values

# Names of PyTorch that tell the networks apart.
OF_INCEPTION, OF_RESNET = 'Conv2d_1a_3x3.conv.weight', 'layer1.0.conv1.weight'
# The beginnings of names of layers below the classifiers.
BODY = re.compile(r'(Conv2d_|Mixed_|conv\d\.|bn\d\.|layer\d)')
# Counters of normalizations and of averages.
_COUNTERS = ('num_batches_tracked', 'n_averaged')
_AUXILIARY = 'AuxLogits.'
_STEM = [row.scope for row in STEM if isinstance(row, Conv)]
_MIXED = [block.scope for block in (*MIXED_35, *MIXED_17, *MIXED_8)]
# A ResNet's children by index: those without weights are ReLU, pools and Flatten.
_RESNET_CHILDREN = {'0': 'conv1', '1': 'bn1', '4': 'layer1', '5': 'layer2', '6': 'layer3', '7': 'layer4'}
# Hugging Face's names of the parts of a ResNet, and torchvision's.
_STAGE = r'encoder\.stages\.(\d)\.layers\.(\d+)\.'
_OF_HUGGING_FACE = 'embedder.embedder.convolution.weight'


class Model(NamedTuple):
    """A network in a state dict: its mark, `OF_INCEPTION` or `OF_RESNET`, its tensors, and names of its classifiers.

    The tensors have torchvision's names, and `heads` the file's own names of classifiers that are called differently.
    """

    mark: str
    arrays: Values
    heads: List[str]


def find(arrays: Mapping[str, np.ndarray]) -> Dict[str, Model]:
    """The networks in a state dict, by the prefix of their names."""
    arrays = {name: array for name, array in arrays.items() if name.rpartition('.')[2] not in _COUNTERS}
    found: Dict[str, Tuple[str, Values]] = {}
    for name in arrays:
        for mark in (OF_INCEPTION, OF_RESNET):
            if f'.{name}'.endswith(f'.{mark}'):
                prefix = name[: -len(mark)]
                found[prefix] = mark, _under(prefix, arrays)
        if f'.{name}'.endswith(f'.{_OF_HUGGING_FACE}'):
            prefix = name[: -len(_OF_HUGGING_FACE)]
            own = {_of_hugging_face(each): array for each, array in _under(prefix, arrays).items()}
            found[prefix] = OF_RESNET, own
        for end, children in (('0.conv.weight', _inception_children), ('0.weight', _resnet_children)):
            if f'.{name}'.endswith(f'.{end}'):
                prefix = name[: -len(end)]
                by_name = children(_under(prefix, arrays))
                found.update({prefix: by_name} if by_name else {})
    models = {}
    for prefix, (mark, own) in found.items():
        # A head may stand beside the network; the other networks of the file do not.
        beside = {name: array for name, array in arrays.items() if not name.startswith(tuple(found))}
        models[prefix] = _with_heads(mark, own, beside)
    return models


def _under(prefix: str, arrays: Mapping[str, np.ndarray]) -> Values:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _inception_children(own: Values) -> Optional[Tuple[str, Values]]:
    """Inception v3 of a `Sequential` of its children; None if it is none."""
    groups: Dict[int, Values] = {}
    others = {}
    for name, array in own.items():
        number, _, rest = name.partition('.')
        if number.isdigit() and len(number) < 4:
            groups.setdefault(int(number), {})[rest] = array
        else:
            others[name] = array
    convs = [number for number in sorted(groups) if 'conv.weight' in groups[number]]
    mixed = [number for number in sorted(groups) if any(name.startswith('branch') for name in groups[number])]
    if len(convs) != len(_STEM) or len(mixed) != len(_MIXED):
        return None
    names = {**dict(zip(convs, _STEM)), **dict(zip(mixed, _MIXED))}
    names.update({number: 'AuxLogits' for number, group in groups.items() if 'conv0.conv.weight' in group})
    renamed = {f'{names.get(n, n)}.{rest}': array for n, group in groups.items() for rest, array in group.items()}
    return OF_INCEPTION, {**renamed, **others}


def _resnet_children(own: Values) -> Optional[Tuple[str, Values]]:
    """A ResNet of a `Sequential` of its children; None if it is none."""
    if '4.0.conv1.weight' not in own or '1.running_mean' not in own:
        return None
    renamed = {}
    for name, array in own.items():
        number, _, rest = name.partition('.')
        renamed[f'{_RESNET_CHILDREN.get(number, number)}.{rest}'] = array
    return OF_RESNET, renamed


def _of_hugging_face(name: str) -> str:
    name = re.sub(r'^embedder\.embedder\.convolution', 'conv1', name)
    name = re.sub(r'^embedder\.embedder\.normalization', 'bn1', name)
    stage = re.match(_STAGE, name)
    if not stage:
        return name
    begin, rest = f'layer{int(stage.group(1)) + 1}.{stage.group(2)}', name[stage.end() :]
    rest = re.sub(r'^shortcut\.convolution', 'downsample.0', rest)
    rest = re.sub(r'^shortcut\.normalization', 'downsample.1', rest)
    rest = re.sub(r'^layer\.(\d)\.convolution', lambda match: f'conv{int(match.group(1)) + 1}', rest)
    rest = re.sub(r'^layer\.(\d)\.normalization', lambda match: f'bn{int(match.group(1)) + 1}', rest)
    return f'{begin}.{rest}'


def _with_heads(mark: str, own: Values, beside: Values) -> Model:
    heads = []
    auxiliary = {name: array for name, array in own.items() if name.startswith(_AUXILIARY)}
    head = {name: array for name, array in own.items() if name not in auxiliary and not BODY.match(name)}
    body = {name: array for name, array in own.items() if name not in auxiliary and name not in head}
    if not head:
        head = {name: beside[name] for name in _only_matrix(beside)}
    for group, prefix in ((head, ''), (auxiliary, _AUXILIARY)):
        plain = {name: array for name, array in group.items() if not re.match(r'AuxLogits\.conv\d\.', name)}
        names = _only_matrix(plain)
        if names and len(names) == len(plain):
            own_name = names[0].rpartition('.')[0]
            heads += [own_name] if own_name != f'{prefix}fc' else []
            for name in names:
                group[f'{prefix}fc.{name.rpartition(".")[2]}'] = group.pop(name)
    return Model(mark, {**body, **auxiliary, **head}, heads)


def _only_matrix(arrays: Mapping[str, np.ndarray]) -> List[str]:
    """The names of weight and bias of the only linear layer among arrays; empty if there is none, or several."""
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if len(matrices) != 1 or not f'.{matrices[0]}'.endswith('.weight'):
        return []
    bias = f'{matrices[0][: -len("weight")]}bias'
    return [matrices[0], bias] if bias in arrays and arrays[bias].shape == arrays[matrices[0]].shape[:1] else []
