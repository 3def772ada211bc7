"""The weights of the Inception graph of December 2015, on which FID, KID and Inception Score are defined.

`classify_image_graph_def.pb` (http://download.tensorflow.org/models/image/imagenet/inception-2015-12-05.tgz) holds them
as constants, and pytorch-fid's `pt_inception-2015-12-05-6726825d.pth` as a state dict. The network is `inception_2015`
of `networks.registry`; its layers have the names of TF-Slim, which are later than those of the graph.
"""

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
from google.protobuf.message import DecodeError

from console.messages import shown
from console.tensorflow_versions import tf
from inception_v3.commands.features import FILES_OF_2015
from inception_v3.commands.weights import architecture, state_dicts
from inception_v3.commands.weights.architecture import TORCH_NAMES, listed
from inception_v3.networks.inception_v3 import MIXED_8_OF_2015, MIXED_17, MIXED_35, STEM, Conv, Fork, Mixed
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError

NETWORK = 'inception_2015'
# 1,000 classes of ImageNet-2012, the background, and 7 outputs without a meaning.
CLASSES = 1008
SIZE = 299
_LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1'
_LOGITS_WEIGHTS = f'{_LOGITS}/weights'
# Names that other files of weights have, and what these files are.
_FOREIGN = (
    (r'AuxLogits\.', "torchvision's Inception v3, which was trained anew and has an auxiliary head"),
    (r'fc\.weight$', 'another network of PyTorch'),
    (r'InceptionV3/', "TF-Slim's Inception v3 of 2016"),
    (r'mixed_?\d.*/(kernel|gamma)|conv2d(_\d+)?/kernel', "Keras's Inception v3"),
)


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
    graph_of = {f'InceptionV3/{row.scope}': _numbered('conv', number) for number, row in enumerate(stem)}
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
        convs = [row for row in branch if isinstance(row, Conv)]
        own = [(row, f'{tower}/{_numbered("conv", n)}') for n, row in enumerate(convs)]
        for fork in (row for row in branch if isinstance(row, Fork)):
            own += [(row, f'{tower}/mixed/{_numbered("conv", n)}') for n, row in enumerate(fork.convs)]
        for conv, name in own:
            yield f'InceptionV3/{block.scope}/Branch_{number}/{conv.scope}', name


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
    is_torch = path.endswith(('.pth', '.pt'))
    if path.endswith('.npz'):
        names, stored = {name: name for name in shapes}, sources.arrays(path, flag)
    elif is_torch or path.endswith('.pb'):
        names, stored = _names(is_torch), state_dicts.read(path, flag) if is_torch else _constants(path, flag)
    else:
        raise WeightsError(
            f'{flag}: must end in .pb, .pth, .pt or .npz: {FILES_OF_2015}, or arrays by the names of variables.'
        )
    values = {name: stored[names[name]] for name in shapes if names.get(name) in stored}
    if is_torch:
        # Kernels are [outputs, inputs, height, width] there, and matrices [outputs, inputs].
        values = {name: value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T for name, value in values.items()}
    if names.get(_LOGITS_WEIGHTS) in stored and not path.endswith('.npz'):
        values[_LOGITS_WEIGHTS] = values[_LOGITS_WEIGHTS][np.newaxis, np.newaxis]
    problems = [f'{name} is missing' for name in shapes if name not in values]
    # The graph of 2015 has no scale: it is 1 in the state dict. Other weights of these shapes have another.
    scales = [f'{layer.module}.bn.weight' for layer in layers()] if is_torch else []
    problems += [f'{name} is not 1' for name in scales if (stored.get(name, np.ones(1)) != 1).any()]
    problems += [
        f'{name} has {_by(values[name].shape)}, not {_by(shape)}'
        for name, shape in shapes.items()
        if name in values and values[name].shape != tuple(shape)
    ]
    if problems:
        kind = next((kind for name, kind in _FOREIGN if any(re.match(name, each) for each in stored)), 'another graph')
        raise WeightsError(
            f'{flag}: has the weights of {kind}, not those of the Inception graph of 2015 ({FILES_OF_2015}): '
            f'{listed(problems)}.'
        )
    infinite = [name for name in shapes if not np.isfinite(values[name]).all()]
    if infinite:
        raise WeightsError(f'{flag}: has values that are not finite, in {listed(infinite)}.')
    return {name: values[name].astype(np.float32) for name in shapes}


def _names(is_torch: bool) -> Dict[str, str]:
    """The names of the network's variables in the state dict or in the graph, by their names here."""
    names = {}
    for layer in layers():
        names[f'{layer.scope}/weights'] = f'{layer.module}.conv.weight' if is_torch else f'{layer.graph}/conv2d_params'
        for name in ('beta', 'moving_mean', 'moving_variance'):
            theirs = f'{layer.module}.bn.{TORCH_NAMES[name]}' if is_torch else f'{layer.graph}/batchnorm/{name}'
            names[f'{layer.scope}/BatchNorm/{name}'] = theirs
    for name in ('weights', 'biases'):
        names[f'{_LOGITS}/{name}'] = f'fc.{TORCH_NAMES[name]}' if is_torch else f'softmax/{name}'
    return names


def _by(shape: Sequence[int]) -> str:
    return ' x '.join(map(str, shape)) or 'one value'


def _constants(path: str, flag: str) -> Dict[str, np.ndarray]:
    """The constants of a frozen graph, by name."""
    graph = tf.GraphDef()
    try:
        graph.ParseFromString(sources.content_of(path, flag))
        # The graph's constant `gamma` takes no part: its operations have scale_after_normalization=False.
        return {
            node.name: tf.make_ndarray(node.attr['value'].tensor)
            for node in graph.node
            if node.op == 'Const' and node.attr['value'].tensor.dtype == tf.float32.as_datatype_enum
        }
    except (DecodeError, TypeError, ValueError) as error:
        raise WeightsError(f'{flag}: is no frozen graph, or is damaged ({shown(error)}).')
