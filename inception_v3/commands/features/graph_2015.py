"""The weights of the Inception graph of December 2015, on which FID, KID and Inception Score are defined.

`classify_image_graph_def.pb` (http://download.tensorflow.org/models/image/imagenet/inception-2015-12-05.tgz) holds them
as constants, and pytorch-fid's `pt_inception-2015-12-05-6726825d.pth` as a state dict. The network is `inception_2015`
of `networks.registry`; its layers have the names of TF-Slim, which are later than those of the graph.
"""

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from google.protobuf.message import DecodeError

from console.messages import shown
from console.tensorflow_versions import tf
from data import remote
from inception_v3.commands.weights import architecture, state_dicts
from inception_v3.networks.inception_v3 import MIXED_8_OF_2015, MIXED_17, MIXED_35, STEM, Branch, Conv, Fork, Mixed
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError

NETWORK = 'inception_2015'
# 1,000 classes of ImageNet-2012, the background, and 7 outputs without a meaning.
CLASSES = 1008
SIZE = 299
FILES = 'classify_image_graph_def.pb of 2015, pt_inception-2015-12-05-6726825d.pth of pytorch-fid'
_LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1'
# Names that other files of weights have, and what these files are.
_FOREIGN = (
    (r'AuxLogits\.', "torchvision's Inception v3, which was trained anew and has an auxiliary head"),
    (r'fc\.weight$', 'another network of PyTorch'),
    (r'InceptionV3/', "TF-Slim's Inception v3 of 2016"),
    (r'mixed_?\d.*/(kernel|gamma)|conv2d(_\d+)?/kernel', "Keras's Inception v3"),
)
# Names of missing or unfitting values that a message shows.
_SHOWN, _LONGEST = 3, 400


class Layer(NamedTuple):
    """The names of a convolution with batch normalization.

    Attributes:
      scope: of its variables in this program.
      graph: in the graph of 2015.
      module: in pytorch-fid.
    """

    scope: str
    graph: str
    module: str


def layers() -> List[Layer]:
    """The convolutions of the network, in its order, without that of the logits."""
    stem = [row for row in STEM if isinstance(row, Conv)]
    graph_of = {f'InceptionV3/{_name(row)}': _numbered('conv', number) for number, row in enumerate(stem)}
    for number, block in enumerate((*MIXED_35, *MIXED_17, *MIXED_8_OF_2015)):
        graph_of.update(_names_in(block, _numbered('mixed', number)))
    # pytorch-fid has the names of torchvision's Inception v3.
    modules = {layer.scope: layer.conv for layer in architecture.inception().layers}
    return [Layer(scope, graph, modules[scope].rpartition('.')[0]) for scope, graph in graph_of.items()]


def _names_in(block: Mixed, graph: str) -> Iterator[Tuple[str, str]]:
    """The scopes of the convolutions of a block, with their names in the graph of 2015."""
    towers = 0
    for number, branch in enumerate(block.branches):
        # A lone convolution of the block's input is outside of the graph's towers.
        tower = graph if len(branch) == 1 else f'{graph}/{_numbered("tower", towers)}'
        towers += len(branch) > 1
        for row, place in _convs(branch):
            yield f'InceptionV3/{block.scope}/Branch_{number}/{_name(row)}', f'{tower}/{place}'


def _convs(branch: Branch) -> Iterator[Tuple[Conv, str]]:
    """The convolutions of a branch, with their names in a tower."""
    count = 0
    for row in branch:
        if isinstance(row, Conv):
            yield row, _numbered('conv', count)
            count += 1
        elif isinstance(row, Fork):
            yield from ((conv, f'mixed/{_numbered("conv", number)}') for number, conv in enumerate(row.convs))


def _name(row: Conv) -> str:
    return row.name or f'Conv2d_{row.place}_{row.kernel[0]}x{row.kernel[1]}'


def _numbered(name: str, number: int) -> str:
    return f'{name}_{number}' if number else name


def read(path: str, shapes: Mapping[str, Sequence[int]], flag: str) -> Dict[str, np.ndarray]:
    """Reads the values of the network's variables.

    Args:
      path: a frozen graph (`.pb`), a state dict of PyTorch (`.pth`, `.pt`), or `.npz` with an array per variable.
      shapes: of the network's variables, by name.
      flag: the flag that names the file, with its value, for messages.

    Raises:
      WeightsError: the file cannot be read, or holds the weights of another graph.
      RemoteError: access is denied, or the store cannot be reached.
    """
    if path.endswith('.pb'):
        held = _constants(path, flag)
        found = _from_graph(held)
    elif state_dicts.is_state_dict(path):
        held = state_dicts.read(path, flag)
        found = _from_state_dict(held)
    elif path.endswith('.npz'):
        held = sources.arrays(path, flag)
        found = {name: held.get(name) for name in shapes}
    else:
        raise WeightsError(f'{flag}: must end in .pb, .pth, .pt or .npz: {FILES}, or arrays by the names of variables.')
    missing = [name for name in shapes if found.get(name) is None]
    if missing:
        raise WeightsError(f'{flag}: {_another(held)} It lacks {_listed(missing)}.')
    values = {name: np.asarray(found[name]) for name in shapes}
    unfitting = [
        f'{name} has {_by(values[name].shape)}, not {_by(shape)}'
        for name, shape in shapes.items()
        if values[name].shape != tuple(shape)
    ]
    if unfitting:
        raise WeightsError(f'{flag}: {_another(held)} {_listed(unfitting)}.')
    infinite = [name for name in shapes if not np.isfinite(values[name]).all()]
    if infinite:
        raise WeightsError(f'{flag}: has values that are not finite, in {_listed(infinite)}.')
    return {name: value.astype(np.float32) for name, value in values.items()}


def _another(held: Mapping[str, np.ndarray]) -> str:
    """A sentence: whose weights the file has."""
    kind = next((kind for name, kind in _FOREIGN if any(re.match(name, each) for each in held)), 'another graph')
    return f'has the weights of {kind}, not those of the Inception graph of 2015 ({FILES}).'


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return shown(', '.join(names[:_SHOWN]), _LONGEST) + (f' and {more:,} more' if more > 0 else '')


def _by(shape: Sequence[int]) -> str:
    return ' x '.join(map(str, shape)) or 'one value'


def _constants(path: str, flag: str) -> Dict[str, np.ndarray]:
    """The constants of a frozen graph, by name."""
    content = None if tf.io.gfile.isdir(path) else remote.read(path)
    if content is None:
        raise WeightsError(f'{flag}: no such file.')
    graph = tf.GraphDef()
    try:
        graph.ParseFromString(content)
        return {
            node.name: tf.make_ndarray(node.attr['value'].tensor)
            for node in graph.node
            if node.op == 'Const' and node.attr['value'].tensor.dtype == tf.float32.as_datatype_enum
        }
    except (DecodeError, TypeError, ValueError) as error:
        raise WeightsError(f'{flag}: is no frozen graph, or is damaged ({shown(error)}).')


def _from_graph(held: Mapping[str, np.ndarray]) -> Dict[str, Optional[np.ndarray]]:
    found: Dict[str, Optional[np.ndarray]] = {}
    for layer in layers():
        found[f'{layer.scope}/weights'] = held.get(f'{layer.graph}/conv2d_params')
        # The graph's constant `gamma` takes no part: its operations have scale_after_normalization=False.
        for name in ('beta', 'moving_mean', 'moving_variance'):
            found[f'{layer.scope}/BatchNorm/{name}'] = held.get(f'{layer.graph}/batchnorm/{name}')
    weights = held.get('softmax/weights')
    found[f'{_LOGITS}/weights'] = None if weights is None else weights[np.newaxis, np.newaxis]
    found[f'{_LOGITS}/biases'] = held.get('softmax/biases')
    return found


def _from_state_dict(held: Mapping[str, np.ndarray]) -> Dict[str, Optional[np.ndarray]]:
    found: Dict[str, Optional[np.ndarray]] = {}
    for layer in layers():
        weights, scale = held.get(f'{layer.module}.conv.weight'), held.get(f'{layer.module}.bn.weight')
        found[f'{layer.scope}/weights'] = None if weights is None else weights.transpose(2, 3, 1, 0)
        # The graph of 2015 has no scale: it is 1 in the state dict. Other weights of these shapes have another.
        for name, key in (('beta', 'bias'), ('moving_mean', 'running_mean'), ('moving_variance', 'running_var')):
            unscaled = scale is None or np.array_equal(scale, np.ones_like(scale))
            found[f'{layer.scope}/BatchNorm/{name}'] = held.get(f'{layer.module}.bn.{key}') if unscaled else None
    weights = held.get('fc.weight')
    found[f'{_LOGITS}/weights'] = None if weights is None else weights.T[np.newaxis, np.newaxis]
    found[f'{_LOGITS}/biases'] = held.get('fc.bias')
    return found
