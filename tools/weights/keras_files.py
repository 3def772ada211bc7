"""Reads and writes the files of Keras with Inception v3: HDF5 with weights, and the configuration of a model.

Keras numbers the layers of a kind in the order of their creation, which is the order of our table: the first
convolution is `conv2d` or `conv2d_1`, whatever the program created before. Files of `save_weights('….weights.h5')` and
`save('….keras')` number them in the order in which Keras lists the layers of a model instead: `Layer.order`.

A configuration with other layers than those of Inception v3 and a simple classifier is refused by the layer's name.
"""

import collections
import io
import json
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import h5py
import numpy as np
from tensorflow.core.protobuf import trackable_object_graph_pb2

from compat.messages import shown
from inception_v3.batch_norm import EPSILON
from inception_v3.weights.sources import OBJECT_GRAPH, WeightsError, archive_of, check_memory, member
from tools.weights import other_networks
from tools.weights.architecture import Layer, Values, variables_of
from tools.weights.changes import Images
from tools.weights.descriptions import Description

HDF5 = b'\x89HDF\r\n\x1a\n'
# The member of a .keras archive that has the weights, and the groups of layers in it.
ARCHIVE_MEMBER = 'model.weights.h5'
_CONFIG_MEMBER = 'config.json'
_LAYERS = ('_layer_checkpoint_dependencies', 'layers')
# The member of a SavedModel that has its configuration.
METADATA = 'keras_metadata.pb'
_WEIGHTS = ('kernel', 'bias', 'gamma', 'beta', 'moving_mean', 'moving_variance', 'mean', 'variance')
# Parts of the keys of variables that are not weights of a model.
_NO_WEIGHTS = {
    '.OPTIMIZER_SLOT',
    'optimizer',
    '_optimizer',
    'keras_api',
    'save_counter',
    '_CHECKPOINTABLE_OBJECT_GRAPH',
}
# The version whose layout is written. Keras reads other layouts of earlier versions.
_VERSION = b'2.2.4-tf'
WITHOUT_CLASSIFIER = '`weights import --no_classifier` takes the layers below the classifier, to begin a run from'
# The layers that a model may have: those of Inception v3 and of its classifier, and those without effect in evaluation.
_OF_NETWORK = ('Conv2D', 'BatchNormalization', 'Activation', 'MaxPooling2D', 'AveragePooling2D', 'Concatenate')
_OF_CLASSIFIER = ('GlobalAveragePooling2D', 'Flatten', 'Dense', 'Softmax')
_IDENTITIES = ('InputLayer', 'Dropout', 'SpatialDropout2D', 'GaussianDropout', 'GaussianNoise')
# The values of these layers' settings, where they exist.
_SETTINGS = {'epsilon': (EPSILON,), 'data_format': ('channels_last', None), 'dilation_rate': ([1, 1],)}
# The convolutions and pools of Inception v3: class, strides, padding and window, with their numbers.
_WINDOWS = {
    ('Conv2D', '[2, 2]', 'valid', 'None'): 5,
    ('Conv2D', '[1, 1]', 'valid', 'None'): 3,
    ('Conv2D', '[1, 1]', 'same', 'None'): 86,
    ('MaxPooling2D', '[2, 2]', 'valid', '[3, 3]'): 4,
    ('AveragePooling2D', '[1, 1]', 'same', '[3, 3]'): 9,
}
_IMPORTED = (
    'Around Inception v3, only layers without effect in evaluation, bilinear resizing and scaling of the pixels before '
    f'it, and an average pool with one dense layer of logits or a softmax can be imported. {WITHOUT_CLASSIFIER}. Of a '
    'file of `model.save_weights`, pixels in [-1, 1] and a softmax are assumed.'
)
# Operations on images, by their names in Keras 2 and 3, with the sign of the exponent or of the addend.
_TIMES = {'math.multiply': 1, 'Multiply': 1, 'math.truediv': -1, 'math.divide': -1, 'TrueDivide': -1, 'Divide': -1}
_PLUS = {'math.add': 1, '__operators__.add': 1, 'Add': 1, 'math.subtract': -1, 'Subtract': -1}
# A network's pixels are smaller than this in any range.
_LARGEST_PIXEL = 20


class KerasFile(NamedTuple):
    """The arrays of a file by the names of `architecture.of_keras`, and the numbers of layers by kind.

    Layers are numbered by `Layer.order`, or in the order of our table. The configuration of the model is None if the
    file has only weights.
    """

    arrays: Values
    numbers: Mapping[str, int]
    is_by_order: bool
    config: Optional[Mapping[str, Any]]


def read(content: bytes) -> KerasFile:
    """Finds the layers of a file of weights, or of a whole model.

    Raises any error of the libraries if the file is damaged, and ValueError if its values are in another file.
    """
    size = len(content)
    config = None
    if not content.startswith(HDF5):
        with archive_of(content) as archive:
            content = member(archive, ARCHIVE_MEMBER)
            config = member(archive, _CONFIG_MEMBER) if _CONFIG_MEMBER in archive.namelist() else None
    with h5py.File(io.BytesIO(content), 'r') as file:
        _check_own(file, size)
        config = file.attrs.get('model_config', config)
        is_by_order = any(name in file for name in _LAYERS)
        by_layer = _by_position(file) if is_by_order else _by_name(file.get('model_weights', file))
    return _numbered(by_layer, is_by_order, json.loads(config) if config else None)


def _numbered(by_layer: Mapping[str, Values], is_by_order: bool, config: Optional[Mapping[str, Any]]) -> KerasFile:
    arrays: Values = {}
    numbers: Dict[str, int] = collections.Counter()
    for name in sorted(by_layer, key=number_of):
        values = by_layer[name]
        kind = 'batch_normalization' if 'moving_mean' in values else ''
        if 'kernel' in values:
            kind = {2: 'dense', 4: 'conv2d'}.get(values['kernel'].ndim, '')
        if values and not kind:
            raise ValueError(f'the layer {name} is neither convolution nor normalization nor classifier')
        arrays.update({f'{kind}_{numbers[kind]}/{last}': array for last, array in values.items()})
        numbers[kind] += 1
    return KerasFile(arrays, numbers, is_by_order, config)


def of_variables(values: Mapping[str, np.ndarray], metadata: Optional[bytes] = None) -> KerasFile:
    """Finds the layers among variables with the names that Keras gives them, such as `conv2d_3/kernel`.

    The metadata is the content of a SavedModel's `keras_metadata.pb`, which has the configuration of the model.
    Variables with other names, such as counters, are ignored. Raises any error if the metadata is damaged.
    """
    by_layer: Dict[str, Values] = {}
    for name, array in values.items():
        layer, _, weight = name.rpartition('/')
        if layer and weight in _WEIGHTS and array.dtype.kind == 'f':
            by_layer.setdefault(layer.rpartition('/')[2], {})[weight] = array
    return _numbered(by_layer, False, _config_in(metadata) if metadata else None)


def by_full_name(values: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    """The variables of a checkpoint of TensorFlow 2, by their names in a graph.

    The checkpoint describes the objects that own them. Slots of optimizers, metrics and counters are left out.

    Raises:
      ValueError: the description is damaged, or two variables have the same name and other values.
    """
    objects = trackable_object_graph_pb2.TrackableObjectGraph()
    # Not by np.asarray, which drops zeros at the end of bytes.
    serialized = values[OBJECT_GRAPH]
    objects.ParseFromString(serialized if isinstance(serialized, bytes) else serialized.item())
    found: Dict[str, np.ndarray] = {}
    for node in objects.nodes:
        for each in node.attributes:
            parts = each.checkpoint_key.split('/')
            if each.name != 'VARIABLE_VALUE' or _NO_WEIGHTS & {*parts} or each.checkpoint_key not in values:
                continue
            name, array = each.full_name or '/'.join(parts[:-2]), values[each.checkpoint_key]
            if name in found and not np.array_equal(found[name], array):
                raise ValueError(f'it has several models: two of its variables are {name}')
            found[name] = array
    return found


def _config_in(metadata: bytes) -> Optional[Mapping[str, Any]]:
    """The configuration of the outermost model in `keras_metadata.pb`, whose format Keras does not document.

    A message of field 1 is an object, with its path in field 3 and its description, JSON, in field 5.
    """
    for node in _fields(metadata).get(1, []):
        own = _fields(node)
        if own.get(3) == [b'root'] and 5 in own:
            description = json.loads(own[5][0].decode(), object_hook=_without_tuples)
            return description if 'layers' in (description.get('config') or {}) else None
    return None


def _without_tuples(value: Dict[str, Any]) -> Any:
    """A tuple, which metadata stores as an object, as a list; other objects unchanged."""
    return value['items'] if value.get('class_name') == '__tuple__' else value


def _fields(message: bytes) -> Dict[int, List[bytes]]:
    """The fields of a protocol buffer message that are texts, bytes or messages, by number.

    (https://protobuf.dev/programming-guides/encoding/)
    """
    found: Dict[int, List[bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not message[at - 1] & 0x80:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 2:
            length = number()
            found.setdefault(tag >> 3, []).append(message[at : at + length])
            at += length
        elif tag & 7 == 0:
            number()
        else:
            at += {1: 8, 5: 4}[tag & 7]
    return found


def _check_own(file: Any, size: int) -> None:
    """Checks that all values are in the file itself, and that no more of them are inflated than the data sets have.

    External links, external storage and virtual data sets read other files of this machine. Keras writes none of them.
    """
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
                # HDF5 inflates a whole compressed chunk, of any length.
                if each.id.get_create_plist().get_nfilters():
                    raise ValueError(f'{each.name} is compressed; h5repack -f NONE undoes it')
                length = each.dtype.itemsize
                for count in map(max, each.shape, each.chunks or each.shape):
                    length *= count
                needed += length
                check_memory(needed, size)


def number_of(name: str) -> int:
    """The number at the end of the name of a layer of Keras; 0 if there is none."""
    match = re.search(r'_(\d+)$', name)
    return int(match.group(1)) if match else 0


# The states of random layers are integers, which both layouts leave out.
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
            arrays = [array for array in arrays if array.dtype.kind == 'f']
            names = ['kernel', 'bias']
            if arrays and arrays[0].ndim == 1:
                names = ['gamma', 'beta', 'moving_mean', 'moving_variance'][0 if len(arrays) != 3 else 1 :]
            by_layer[f'{path}{layer}'] = dict(zip(names, arrays))
            by_layer.update(_by_position(root[layer], f'{path}{layer}/'))
    return by_layer


def check_network(found: KerasFile, layers: Sequence[Layer], classifier: bool, path: str) -> None:
    """Raises WeightsError if a file has not the numbers of layers of Inception v3 without its auxiliary head."""
    convs = sum(not layer.is_classifier for layer in layers)
    numbers = [found.numbers.get(kind, 0) for kind in ('conv2d', 'batch_normalization', 'dense')]
    if numbers[:2] != [convs, convs]:
        network = other_networks.of_keras(numbers)
        raise WeightsError(
            f'{path}: {f"has the weights of {network}, and " if network else ""}is not Inception v3 of '
            f'keras.applications: it has {numbers[0]} convolutions, {numbers[1]} '
            f'normalizations and {numbers[2]} dense layers, not {convs}, {convs} and one.'
        )
    if numbers[2] > 1 and classifier:
        raise WeightsError(f'{path}: its classifier has {numbers[2]} dense layers, not one. {WITHOUT_CLASSIFIER}.')


def write(layers: Sequence[Layer], values: Mapping[str, np.ndarray]) -> bytes:
    """A file for `load_weights` of `keras.applications.InceptionV3`, by the order of its layers or by their names."""
    groups: List[Tuple[Tuple[float, ...], str, Values]] = []
    for number, layer in enumerate(layers):
        own = {name.rpartition('/')[2]: values[name] for name in variables_of(layer, has_scales=False)}
        kernel = own.pop('weights')
        if layer.is_classifier:
            groups.append(((np.inf,), 'predictions', {'kernel': kernel[0, 0], 'bias': own['biases']}))
            continue
        suffix = f'_{number}' if number else ''
        place, distance, branch = layer.order
        groups.append(((place, distance, branch, number), f'conv2d{suffix}', {'kernel': kernel}))
        # Keras lists the normalizations of a distance after the convolutions of the same distance from them.
        groups.append(((place, distance + 1, branch, number), f'batch_normalization{suffix}', own))
    groups.sort(key=lambda group: group[0])
    content = io.BytesIO()
    with h5py.File(content, 'w') as file:
        file.attrs['backend'], file.attrs['keras_version'] = b'tensorflow', _VERSION
        file.attrs['layer_names'] = [name.encode() for _, name, _ in groups]
        for _, layer_name, own in groups:
            group = file.create_group(layer_name)
            group.attrs['weight_names'] = [f'{layer_name}/{name}:0'.encode() for name in own]
            for name, value in own.items():
                group.create_dataset(f'{layer_name}/{name}:0', data=value)
    return content.getvalue()


def check_config(config: Mapping[str, Any], classifier: bool, path: str) -> Description:
    """Checks that a configuration is one of Inception v3 with a simple classifier, and describes its images.

    Without `classifier`, the layers after its last convolution may be any. The description has the range of the
    network's pixels if the model scales them itself, and the size of the images that it resizes to or is given.

    Raises WeightsError if the model has other layers than Inception v3, and any error if it is no configuration.
    """
    layers = [*_layers(config)]
    places = [number for number, layer in enumerate(layers) if layer['class_name'] == 'Conv2D'] or [len(layers)]
    description = _before(layers[: places[0]], path)
    windows: Dict[Tuple[Any, ...], int] = collections.Counter()
    kinds: List[str] = []
    for layer in layers[places[0] :] if classifier else layers[places[0] : places[-1] + 1]:
        kind, own = layer['class_name'], layer['config']
        activations = {'Conv2D': ('linear',), 'Activation': ('relu',), 'Dense': ('linear', 'softmax')}
        if 'Dense' in kinds:
            activations['Activation'] = ('softmax',)
        allowed = activations.get(kind, ('linear',))
        is_known = kind in (*_OF_NETWORK, *_OF_CLASSIFIER, *_IDENTITIES) or kind.startswith('Random')
        is_usual = all(own[setting] in values for setting, values in _SETTINGS.items() if setting in own)
        if not is_known or not is_usual or own.get('activation', allowed[0]) not in allowed:
            raise _refused(layer, path)
        if 'strides' in own:
            windows[kind, str(own['strides']), own['padding'], str(own.get('pool_size'))] += 1
        kinds.append(kind)
    if windows != _WINDOWS:
        raise WeightsError(f'{path}: its configuration has other convolutions or pools than Inception v3. {_IMPORTED}')
    return description


def _refused(layer: Mapping[str, Any], path: str) -> WeightsError:
    name = shown(f'{layer["class_name"]} ({layer["config"].get("name")})')
    return WeightsError(f'{path}: its configuration has the layer {name}. {_IMPORTED}')


def _before(layers: Sequence[Mapping[str, Any]], path: str) -> Description:
    """The effect on pixels of the layers before the first convolution, and the size of the images after them."""
    scale, shift = np.ones(3), np.zeros(3)
    size, scaling = None, None
    notes = []
    for layer in layers:
        kind, own = layer['class_name'], layer['config']
        # Keras 2 writes operations as layers of one class.
        kind = own['function'] if kind == 'TFOpLambda' else kind
        given = own.get('batch_input_shape', own.get('batch_shape'))
        if given and all(type(each) is int for each in given[1:3]):
            size = given[1], given[2]
        factor, offset = np.ones(3), np.zeros(3)
        if kind == 'Resizing':
            if own.get('interpolation', 'bilinear') != 'bilinear':
                raise _refused(layer, path)
            before, size = size, (int(own['height']), int(own['width']))
            notes.append(f'  its layer Resizing is replaced by the resizing of evaluation, to {size[0]} x {size[1]}')
            if before and before != size:
                notes[-1] += f'; there, images have {before[0]} x {before[1]} pixels first'
        elif kind == 'Rescaling':
            factor, offset = factor * own['scale'], offset + own['offset']
        elif kind == 'Normalization':
            # Without them, `adapt` has computed them, and they are weights.
            if own.get('mean') is None or own.get('variance') is None or own.get('invert'):
                raise _refused(layer, path)
            factor = 1 / np.maximum(np.sqrt(np.ravel(own['variance'])), 1e-7)
            offset = -np.ravel(own['mean']) * factor
        elif kind in _TIMES or kind in _PLUS:
            number = _number_of(layer)
            if number is None:
                raise _refused(layer, path)
            factor = factor * number ** float(_TIMES.get(kind, 0))
            offset = offset + number * _PLUS.get(kind, 0)
        elif kind not in _IDENTITIES and not kind.startswith('Random'):
            raise _refused(layer, path)
        if (factor != 1).any() or (offset != 0).any():
            scaling, scale, shift = layer, scale * factor, shift * factor + offset
    images = None
    if scaling:
        images = Images(scale * 255, shift)
        if np.abs([scale * 255 + shift, shift]).max() > _LARGEST_PIXEL:
            # The model's images are in [0, 1], or this is no scaling for a network.
            images = Images(scale, shift)
            if np.abs([scale + shift, shift]).max() > _LARGEST_PIXEL or scale.min() < 1:
                raise _refused(scaling, path)
    return Description(path, images, size, notes=notes)


def _number_of(layer: Mapping[str, Any]) -> Optional[float]:
    """The number with which an operation changes its input; None if it has none, or the input is not the first."""
    (node,) = layer['inbound_nodes']
    if isinstance(node, dict):
        found = node['args'][1:] if isinstance(node['args'][0], dict) else []
    else:
        name, _, _, arguments = node[0] if isinstance(node[0], list) else node
        found = [] if name == '_CONSTANT_VALUE' else [arguments.get('y')]
    return float(found[0]) if len(found) == 1 and type(found[0]) in (int, float) and found[0] else None


def _layers(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The layers of a model and of the models in it. Keras lists them in the order of their computation."""
    own = config['config']
    for layer in own if isinstance(own, list) else own['layers']:
        inner = layer['config']
        if isinstance(inner, list) or 'layers' in inner:
            yield from _layers(layer)
        else:
            yield layer
