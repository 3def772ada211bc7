"""Reads and writes the weights of Inception v3 in the HDF5 files of `keras.applications`.

Keras numbers the layers of a kind in the order of their creation, which is the order of our table: the first
convolution is `conv2d` or `conv2d_1`, whatever the program created before. Files of `save_weights('….weights.h5')` and
`save('….keras')` number them in the order in which Keras lists the layers of a model instead: `Layer.order`.
"""

import importlib
import io
import itertools
import json
import re
import zipfile
import zlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from console.errors import CommandError
from inception_v3.commands.weights.architecture import Layer, variables_of
from inception_v3.commands.weights.keras_configs import WITHOUT_CLASSIFIER, KerasError
from inception_v3.weights.kinds import HDF5
from inception_v3.weights.sources import check_memory, member

# The member of a .keras archive that has the weights, and the groups of layers in it.
ARCHIVE_MEMBER = 'model.weights.h5'
_CONFIG_MEMBER, _LONGEST_CONFIG = 'config.json', 1 << 24
_LAYERS = ('_layer_checkpoint_dependencies', 'layers')
# HDF5's numbers of the filters that a data set may have: deflate, shuffle, and the checksum Fletcher-32.
_DEFLATE, _FILTERS = 1, {1, 2, 3}
# The version whose layout is written. Keras reads other layouts of earlier versions.
_VERSION = b'2.2.4-tf'

Values = Dict[str, np.ndarray]


class KerasFile(NamedTuple):
    """The layers with weights in a file, each with its values by name, in the order in which Keras numbers them.

    Attributes:
      convs, norms, dense: convolutions, normalizations and classifiers.
      names: the names of all layers.
      is_by_order: whether layers are numbered by `Layer.order`, not in the order of our table.
      config: of the model; None if the file has weights alone.
    """

    convs: List[Values]
    norms: List[Values]
    dense: List[Values]
    names: List[str]
    is_by_order: bool
    config: Optional[Mapping[str, Any]]


def _h5py() -> Any:
    try:
        return importlib.import_module('h5py')
    except ImportError:
        raise CommandError('h5py is missing, which TensorFlow brings: pip install h5py')


def read(content: bytes) -> KerasFile:
    """Finds the layers of a file of weights, or of a whole model.

    Raises any error of the libraries if the file is damaged, and ValueError if its values are in another file.
    """
    size = len(content)
    config = None
    if not content.startswith(HDF5):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inflated = archive.getinfo(ARCHIVE_MEMBER).file_size
            check_memory(inflated, size)
            content = member(archive, ARCHIVE_MEMBER, inflated)
            if _CONFIG_MEMBER in archive.namelist():
                config = member(archive, _CONFIG_MEMBER, _LONGEST_CONFIG)
    with _h5py().File(io.BytesIO(content), 'r') as file:
        _check_own(file, size)
        config = file.attrs.get('model_config', config)
        is_by_order = any(name in file for name in _LAYERS)
        by_layer = _by_position(file) if is_by_order else _by_name(file.get('model_weights', file))
    found = KerasFile([], [], [], [*by_layer], is_by_order, json.loads(config) if config else None)
    for name in sorted(by_layer, key=number_of):
        values = by_layer[name]
        if 'moving_mean' in values:
            found.norms.append(values)
        elif 'kernel' in values and values['kernel'].ndim in (2, 4):
            (found.convs if values['kernel'].ndim == 4 else found.dense).append(values)
        elif values:
            raise ValueError(f'the layer {name} is neither convolution nor normalization nor classifier')
    return found


def _check_own(file: Any, size: int) -> None:
    """Checks that all values are in the file itself, and that no more of them are inflated than the data sets have.

    External links, external storage and virtual data sets read other files of this machine. Keras writes none of them.
    """
    h5py = _h5py()
    needed = 0
    groups, seen = [file], {file}
    for group in groups:
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f'{name} is a link to another place, which is not followed')
            each = group[name]
            if isinstance(each, h5py.Group) and each not in seen:
                seen.add(each)
                groups.append(each)
            if isinstance(each, h5py.Dataset):
                if each.is_virtual or each.external:
                    raise ValueError(f'{each.name} has its values in another file, which is not read')
                if each.dtype.hasobject:
                    raise ValueError(f'{each.name} holds no numbers')
                length = each.dtype.itemsize
                for count in map(max, each.shape, each.chunks or each.shape):
                    length *= count
                needed += length
                check_memory(needed, size)
                _check_chunks(each)


def _check_chunks(dataset: Any) -> None:
    """Checks that no compressed chunk inflates to more than its length: HDF5 inflates it whole."""
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
    if not {*filters} <= _FILTERS or filters.count(_DEFLATE) > 1:
        raise ValueError(f'{dataset.name} is compressed by another method than deflate; h5repack -f NONE undoes it')
    if _DEFLATE in filters:
        length = int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
        for place in itertools.product(*map(range, [0] * dataset.ndim, dataset.shape, dataset.chunks)):
            chunk = dataset.id.read_direct_chunk(place)[1]
            if len(zlib.decompressobj().decompress(chunk, length + 1)) > length:
                raise ValueError(f'{dataset.name} inflates to more than its shape')


def number_of(name: str) -> int:
    """The number at the end of the name of a layer of Keras; 0 if there is none."""
    match = re.search(r'_(\d+)$', name)
    return int(match.group(1)) if match else 0


def _by_name(root: Any) -> Dict[str, Values]:
    """The values of each layer of a file that names every weight, such as `conv2d_3/kernel:0`."""
    by_layer: Dict[str, Values] = {}
    if 'layer_names' not in root.attrs:
        raise ValueError('it has no list of layers, `layer_names`')
    for group in _texts(root.attrs['layer_names']):
        for weight in _texts(root[group].attrs['weight_names']):
            # A model inside a model is one group, with the names of all its layers.
            layer, _, name = weight.rpartition('/')
            array = np.array(root[group][weight])
            if array.dtype.kind == 'f':
                # Integers are the states of random layers.
                by_layer.setdefault(layer.rpartition('/')[2], {})[name.partition(':')[0]] = array
    return by_layer


def _texts(values: Any) -> List[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


def _by_position(model: Any, path: str = '') -> Dict[str, Values]:
    """The values of each layer, by its path, of a file that numbers the weights of a layer; and of models in it."""
    by_layer: Dict[str, Values] = {}
    for root in (model[name] for name in _LAYERS if name in model):
        for layer in root:
            weights = root[layer].get('vars', {})
            arrays = [np.array(weights[number]) for number in sorted(weights, key=int)]
            # Integers are the states of random layers.
            arrays = [array for array in arrays if array.dtype.kind == 'f']
            names = ['kernel', 'bias']
            if arrays and arrays[0].ndim == 1:
                names = ['gamma', 'beta', 'moving_mean', 'moving_variance'][0 if len(arrays) != 3 else 1 :]
            by_layer[f'{path}{layer}'] = dict(zip(names, arrays))
            by_layer.update(_by_position(root[layer], f'{path}{layer}/'))
    return by_layer


def check_network(found: KerasFile, layers: Sequence[Layer], classifier: bool) -> None:
    """Raises KerasError if a file has not the numbers of layers of Inception v3 without its auxiliary head."""
    if {'conv1_conv', 'conv1'} & {*found.names}:
        raise KerasError(
            "has the weights of Keras' ResNet. Its first version strides in the first 1 x 1 convolution of a stage, "
            'and has biases; the second normalizes before it convolves. --network=resnet50 strides in the 3 x 3 '
            'convolution (version 1.5), so the weights would compute something else. Those of torchvision fit.'
        )
    convs = sum(not layer.is_classifier for layer in layers)
    if (len(found.convs), len(found.norms)) != (convs, convs):
        raise KerasError(
            f'is not Inception v3 of keras.applications: it has {len(found.convs)} convolutions, {len(found.norms)} '
            f'normalizations and {len(found.dense)} dense layers, not {convs}, {convs} and one.'
        )
    if len(found.dense) > 1 and classifier:
        raise KerasError(f'its classifier has {len(found.dense)} dense layers, not one. {WITHOUT_CLASSIFIER}.')


def write(layers: Sequence[Layer], values: Mapping[str, np.ndarray]) -> bytes:
    """A file for `load_weights` of `keras.applications.InceptionV3`, by the order of its layers or by their names."""
    groups: List[Tuple[Tuple[int, ...], str, Values]] = []
    classifiers: List[Tuple[str, Values]] = []
    number = 0
    for layer in layers:
        own = {name.rpartition('/')[2]: values[name] for name in variables_of(layer, has_scales=False)}
        kernel = own.pop('weights')
        if layer.is_classifier:
            classifiers.append(('predictions', {'kernel': kernel[0, 0], 'bias': own['biases']}))
            continue
        suffix = f'_{number}' if number else ''
        place, distance, branch = layer.order
        groups.append(((place, distance, branch, number), f'conv2d{suffix}', {'kernel': kernel}))
        # Keras lists the normalizations of a distance after the convolutions of the same distance from them.
        groups.append(((place, distance + 1, branch, number), f'batch_normalization{suffix}', own))
        number += 1
    content = io.BytesIO()
    with _h5py().File(content, 'w') as file:
        file.attrs['backend'], file.attrs['keras_version'] = b'tensorflow', _VERSION
        ordered = [*((name, own) for _, name, own in sorted(groups, key=lambda group: group[0])), *classifiers]
        file.attrs['layer_names'] = [name.encode() for name, _ in ordered]
        for layer_name, own in ordered:
            group = file.create_group(layer_name)
            group.attrs['weight_names'] = [f'{layer_name}/{name}:0'.encode() for name in own]
            for name, value in own.items():
                group.create_dataset(f'{layer_name}/{name}:0', data=value)
    return content.getvalue()
