"""The weights of the Inception graph of December 2015, on which FID, KID and Inception Score are defined.

`classify_image_graph_def.pb` (http://download.tensorflow.org/models/image/imagenet/inception-2015-12-05.tgz) holds them
as constants, and pytorch-fid's `pt_inception-2015-12-05-6726825d.pth` as a state dict. The network is `inception_2015`
of `networks.registry`; its layers have TF-Slim's names, which are newer than the graph's own.
"""

from typing import Dict, List, Mapping, Sequence

from inception_v3.networks.inception_2015 import MIXED_8_OF_2015
from inception_v3.networks.inception_v3 import MIXED_17, MIXED_35, STEM, Conv, Fork
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tools.features import FILES_OF_2015
from tools.weights import frozen_graphs, state_dicts
from tools.weights.architecture import (
    KERAS_MATRIX,
    Entry,
    Layer,
    Values,
    entries_of,
    inception,
    of_torch,
    to_ours,
)

NETWORK = 'inception_2015'
# 1,000 classes of ImageNet-2012, the background, and 7 outputs without a meaning.
CLASSES = 1008
SIZE = 299


def names_in_graph() -> Dict[str, str]:
    """The names of the convolutions in the graph of 2015 by their scopes here, in the network's order."""
    stem = [row for row in STEM if isinstance(row, Conv)]
    names = {f'InceptionV3/{row.scope}': _numbered('conv', number) for number, row in enumerate(stem)}
    for place, block in enumerate((*MIXED_35, *MIXED_17, *MIXED_8_OF_2015)):
        graph, towers = _numbered('mixed', place), 0
        for number, branch in enumerate(block.branches):
            # A branch of a single convolution is outside the graph's towers.
            tower = graph if len(branch) == 1 else f'{graph}/{_numbered("tower", towers)}'
            towers += len(branch) > 1
            convs = [row for row in branch if isinstance(row, Conv)]
            own = [(row, f'{tower}/{_numbered("conv", n)}') for n, row in enumerate(convs)]
            for fork in (row for row in branch if isinstance(row, Fork)):
                own += [(row, f'{tower}/mixed/{_numbered("conv", n)}') for n, row in enumerate(fork.convs)]
            names.update({f'InceptionV3/{block.scope}/Branch_{number}/{conv.scope}': name for conv, name in own})
    return names


def _numbered(name: str, number: int) -> str:
    return f'{name}_{number}' if number else name


def of_graph(layers: Sequence[Layer]) -> List[Entry]:
    """The entries of the constants of the frozen graph."""
    names = names_in_graph()

    def name_of(layer: Layer, last: str) -> str:
        if layer.is_classifier:
            return f'softmax/{last}'
        return f'{names[layer.scope]}/{"conv2d_params" if last == "weights" else f"batchnorm/{last}"}'

    # The graph does not use its constant `gamma`: its operations have scale_after_normalization=False.
    entries = entries_of(layers, False, name_of, matrix=KERAS_MATRIX)
    return [entry for entry in entries if not entry.theirs.endswith('/gamma')]


def read(path: str, shapes: Mapping[str, Sequence[int]], flag: str) -> Values:
    """Reads the values of the network's variables, whose shapes are given by name.

    The file is a frozen graph (`.pb`), a state dict of PyTorch (`.pth`, `.pt`), or `.npz` with an array per variable.
    Raises WeightsError if it cannot be read, or holds the weights of another graph; messages begin with the flag.
    """
    layers = inception().of(auxiliary_head=False)
    if path.endswith('.npz'):
        stored = sources.arrays(path, flag)
        entries = [Entry(name, name, (), tuple(range(len(shape))), False) for name, shape in shapes.items()]
    elif path.endswith(('.pth', '.pt')):
        content = sources.content_of(path, flag)
        with sources.damage_explained(flag, 'state dict of PyTorch'):
            stored, entries = max(state_dicts.read(content).models.values(), key=len), of_torch(layers, False)
    elif path.endswith('.pb'):
        content = sources.content_of(path, flag)
        with sources.damage_explained(flag, 'frozen graph'):
            stored, entries = frozen_graphs.constants_in(content), of_graph(layers)
    else:
        raise WeightsError(
            f'{flag}: must end in .pb, .pth, .pt or .npz: {FILES_OF_2015}, or arrays by the names of variables.'
        )
    own = {entry.ours: entry._replace(shape=tuple(shapes.get(entry.ours, ()))) for entry in entries}
    try:
        # The graph of 2015 has no scale: the state dict has 1. Other networks with these shapes have other values.
        scales = (entry.theirs for entry in entries if entry.is_optional and entry.theirs in stored)
        scaled = next((name for name in scales if (stored[name] != 1).any()), None)
        if scaled:
            raise WeightsError(f'{flag}: {scaled} is not 1.')
        return to_ours(stored, [own[name] for name in shapes], flag)
    except WeightsError as error:
        raise WeightsError(
            f'{error} These are the weights of another graph, such as the Inception v3 of torchvision, TF-Slim or '
            f'Keras, not those of the Inception graph of 2015 ({FILES_OF_2015}).'
        )
