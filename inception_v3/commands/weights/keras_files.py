"""Reads and writes the files of Keras with Inception v3: HDF5 with weights, and the configuration of a model.

Keras numbers the layers of a kind in the order of their creation, which is the order of our table: the first
convolution is `conv2d` or `conv2d_1`, whatever the program created before. Files of `save_weights('….weights.h5')` and
`save('….keras')` number them in the order in which Keras lists the layers of a model instead: `Layer.order`.

Of a configuration, a linear layer carries the scaling of pixels and the order of their channels. One that computes
anything else than Inception v3 is refused by the name of its layer.
"""

import collections
import io
import itertools
import json
import re
import zlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import h5py
import numpy as np

from console.errors import CommandError
from console.messages import shown
from inception_v3.batch_norm import EPSILON
from inception_v3.commands.weights.architecture import Layer, Values, variables_of
from inception_v3.weights.sources import archive_of, check_memory, member

HDF5 = b'\x89HDF\r\n\x1a\n'
# The member of a .keras archive that has the weights, and the groups of layers in it.
ARCHIVE_MEMBER = 'model.weights.h5'
_CONFIG_MEMBER = 'config.json'
_LAYERS = ('_layer_checkpoint_dependencies', 'layers')
# HDF5's numbers of the filters that a data set may have: deflate, shuffle, and the checksum Fletcher-32.
_DEFLATE, _FILTERS = 1, {1, 2, 3}
# The version whose layout is written. Keras reads other layouts of earlier versions.
_VERSION = b'2.2.4-tf'
SOFTMAX, SIGMOID = 'softmax', 'sigmoid'
WITHOUT_CLASSIFIER = '`weights import --no_classifier` takes the layers below the classifier, to begin a run from'
_ENDS = ('linear', SOFTMAX, SIGMOID)
# Layers without effect in evaluation, and one whose sizes are those of the images that a caller gives.
_IDENTITIES = ('InputLayer', 'Dropout', 'SpatialDropout2D', 'GaussianDropout', 'GaussianNoise', 'Resizing')
# The convolutions and pools of Inception v3: class, strides, padding and window, with their numbers.
_SHAPES: Mapping[Tuple[Any, ...], int] = {
    ('Conv2D', 2, 'valid', None): 5,
    ('Conv2D', 1, 'valid', None): 3,
    ('Conv2D', 1, 'same', None): 86,
    ('MaxPooling2D', 2, 'valid', 3): 4,
    ('AveragePooling2D', 1, 'same', 3): 9,
}
# The values that settings of its layers have, if they are there.
_SETTINGS: Mapping[str, Sequence[Any]] = {
    'data_format': ('channels_last', None),
    'dilation_rate': ([1, 1],),
    'groups': (1,),
    'epsilon': (EPSILON,),
    'axis': (3, [3], -1, [-1]),
}
_POOL = 'GlobalAveragePooling2D'
# Keras' least deviation in a normalization.
_LEAST = 1e-7
# The operations of a value and a constant, by their names in TensorFlow and in Keras 3.
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(('math.add', '__operators__.add', 'nn.bias_add', 'Add'), np.add),
    **dict.fromkeys(('math.subtract', 'Subtract'), np.subtract),
    **dict.fromkeys(('math.multiply', 'Multiply'), np.multiply),
    **dict.fromkeys(('math.truediv', 'math.divide', 'TrueDivide', 'Divide'), np.divide),
}
_REVERSED = [{'class_name': '__ellipsis__'}, {'start': None, 'stop': None, 'step': -1}]
# The errors of reading a part of a configuration that has another form.
FORM_ERRORS = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class KerasError(CommandError):
    """A file of Keras holds weights of another network."""


class KerasFile(NamedTuple):
    """The arrays of a file by the names of `architecture.of_keras`, the numbers of layers by kind, and all their names.

    Layers are numbered by `Layer.order`, or in the order of our table. There is no configuration of the model if the
    file has weights alone.
    """

    arrays: Values
    numbers: Mapping[str, int]
    names: List[str]
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
    return KerasFile(arrays, numbers, [*by_layer], is_by_order, json.loads(config) if config else None)


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


def check_network(found: KerasFile, layers: Sequence[Layer], classifier: bool) -> None:
    """Raises KerasError if a file has not the numbers of layers of Inception v3 without its auxiliary head."""
    if {'conv1_conv', 'conv1'} & {*found.names}:
        raise KerasError(
            "has the weights of Keras' ResNet, which strides elsewhere than --network=resnet50 (version 1.5), so that "
            'they would compute something else. Those of torchvision fit.'
        )
    convs = sum(not layer.is_classifier for layer in layers)
    numbers = [found.numbers.get(kind, 0) for kind in ('conv2d', 'batch_normalization', 'dense')]
    if numbers[:2] != [convs, convs]:
        raise KerasError(
            f'is not Inception v3 of keras.applications: it has {numbers[0]} convolutions, {numbers[1]} '
            f'normalizations and {numbers[2]} dense layers, not {convs}, {convs} and one.'
        )
    if numbers[2] > 1 and classifier:
        raise KerasError(f'its classifier has {numbers[2]} dense layers, not one. {WITHOUT_CLASSIFIER}.')


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


class Form(NamedTuple):
    """The parts of a model around its Inception v3, which is given pixels in [0, 255] @ matrix + shift, [3, 3] and [3].

    If the model does not scale the pixels, the caller does. The classifier ends with `SOFTMAX` or, with one output,
    `SIGMOID`; logits are taken for those of a softmax.
    """

    matrix: np.ndarray
    shift: np.ndarray
    is_scaled: bool
    activation: str


def read_config(config: Mapping[str, Any], classifier: bool) -> Form:
    """Reads a configuration as of `model.to_json()`, with or without its classifier.

    Raises `KerasError` if the model computes something else, and one of `FORM_ERRORS` if it is no configuration.
    """
    layers = [*_layers(config)]
    convs = [number for number, layer in enumerate(layers) if layer['class_name'] == 'Conv2D']
    if not convs:
        raise KerasError('its configuration has no convolutions.')
    # The end of the last block is listed after its last convolution.
    end = next((n for n, layer in enumerate(layers) if n > convs[-1] and not _is_of_block(layer)), len(layers))
    _check_body(layers[convs[0] : end])
    form = _front(layers[: convs[0]])
    return form._replace(activation=_head(layers[end:])) if classifier else form


def _layers(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The layers of a model and of the models in it. Keras lists them in the order of their computation."""
    own = config['config']
    for layer in own if isinstance(own, list) else own['layers']:
        inner = layer['config']
        if isinstance(inner, list) or 'layers' in inner:
            yield from _layers(layer)
        else:
            yield layer


def _refuse(layer: Mapping[str, Any], reason: str) -> KerasError:
    function = layer['config'].get('function')
    kind = f'{layer["class_name"]} {function}' if isinstance(function, str) else layer['class_name']
    name = shown(f'{kind} ({layer["config"].get("name", "without a name")})')
    return KerasError(f'its configuration has the layer {name}: {reason}.')


def _is_of_block(layer: Mapping[str, Any]) -> bool:
    kind, activation = layer['class_name'], layer['config'].get('activation')
    return kind in ('BatchNormalization', 'Concatenate') or (kind == 'Activation' and activation not in _ENDS)


def _check_body(layers: Sequence[Mapping[str, Any]]) -> None:
    found: Dict[Tuple[Any, ...], int] = collections.Counter()
    for layer in layers:
        kind, own = layer['class_name'], layer['config']
        if not _is_of_block(layer) and kind not in {shape[0] for shape in _SHAPES}:
            raise _refuse(layer, 'Inception v3 has none')
        activation = {'Activation': 'relu', 'Conv2D': 'linear'}.get(kind)
        if activation and own.get('activation', activation) != activation:
            raise _refuse(layer, f'its activation is {shown(own["activation"])}, not {activation}')
        for name, allowed in _SETTINGS.items():
            if name in own and own[name] not in allowed:
                raise _refuse(layer, f'{name} is {shown(own[name])}, not {allowed[0]}')
        if 'strides' in own:
            strides, window = (
                each[0] if len({*each}) == 1 else str(each) for each in (own['strides'], own.get('pool_size') or [None])
            )
            shape = (kind, strides, own['padding'], window)
            found[shape] += 1
            if found[shape] > _SHAPES.get(shape, 0):
                raise _refuse(layer, f'Inception v3 has {_SHAPES.get(shape, 0)} of its kind, strides and padding')
    if sum(found.values()) < sum(_SHAPES.values()):
        raise KerasError('its configuration has fewer convolutions or pools than Inception v3.')


def _front(layers: Sequence[Mapping[str, Any]]) -> Form:
    """The layers before the first convolution, which are computed for black, and for 255 of each channel alone."""
    white = 255.0
    start = outputs = np.vstack([np.zeros(3), white * np.eye(3)])
    matrix, is_scaled = np.eye(3), False
    for layer in layers:
        # Augmentation has no effect in evaluation.
        if layer['class_name'] in _IDENTITIES or layer['class_name'].startswith('Random'):
            continue
        if len(layer.get('inbound_nodes', [])) > 1:
            raise _refuse(layer, 'it is called more than once')
        try:
            with np.errstate(divide='raise', invalid='raise'):
                outputs = _computed(layer, outputs)
        except FORM_ERRORS:
            raise _refuse(layer, 'before the network, only a scaling and an order of channels can be imported')
        matrix = (outputs[1:] - outputs[0]) / white
        is_scaled = sorted(map(tuple, outputs)) != sorted(map(tuple, start))
        if not np.isfinite(outputs).all() or (is_scaled and (np.abs(matrix) > 1).any()):
            raise _refuse(layer, 'it is for other pixels than those in [0, 255]')
    return Form(matrix, outputs[0], is_scaled, SOFTMAX)


def _computed(layer: Mapping[str, Any], pixels: np.ndarray) -> np.ndarray:
    """Applies a layer before the network to pixels [..., 3]. Raises `FORM_ERRORS` for other layers."""
    kind, own = layer['class_name'], layer['config']
    if kind == 'Rescaling':
        return pixels * _of_channels(own['scale']) + _of_channels(own['offset'])
    if kind == 'Normalization':
        if own['axis'] not in ([-1], [3], -1, 3) or own.get('invert'):
            raise ValueError
        deviation = np.maximum(np.sqrt(_of_channels(own['variance'])), _LEAST)
        return (pixels - _of_channels(own['mean'])) / deviation
    operation, constants = own.get('function', kind), _constants(layer)
    if (operation == '__operators__.getitem' and constants['slice_spec'] == _REVERSED) or (
        operation == 'reverse' and constants['axis'] in ([-1], [3])
    ):
        return pixels[..., ::-1]
    if operation.endswith('gather') and constants['axis'] in (-1, 3) and sorted(constants['indices']) == [0, 1, 2]:
        return pixels[..., constants['indices']]
    if operation in ('cast', 'Cast') and constants['dtype'] in ('float32', 'float64'):
        return pixels
    (constant,) = [_of_channels(each) for name, each in constants.items() if name in ('y', 'bias')]
    return _OPERATIONS[operation](pixels, constant)


def _of_channels(value: Any) -> np.ndarray:
    """A number, or three."""
    values = np.broadcast_to(np.asarray(value, np.float64).reshape(-1), 3)
    if not np.isfinite(values).all():
        raise ValueError
    return values


def _constants(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    (node,) = layer['inbound_nodes']
    if isinstance(node, dict):
        # Keras 3: the input, and perhaps one constant.
        _, *constants = node['args']
        return {**node['kwargs'], **dict(zip(['y'], constants))}
    name, _, _, constants = node if isinstance(node[0], str) else node[0]
    if name == '_CONSTANT_VALUE':
        raise ValueError
    return constants


def _head(layers: Sequence[Mapping[str, Any]]) -> str:
    pools = [layer for layer in layers if 'Pooling' in layer['class_name']]
    if layers and [layer['class_name'] for layer in pools] != [_POOL]:
        raise _refuse((pools or layers)[0], f'the classifier of Inception v3 follows one {_POOL}. {WITHOUT_CLASSIFIER}')
    activation, units = SOFTMAX, 0
    for layer in layers:
        kind, own = layer['class_name'], layer['config']
        if kind in (*_IDENTITIES, _POOL, 'Flatten'):
            continue
        if kind not in ('Dense', 'Activation', 'Softmax'):
            raise _refuse(layer, f'it is no part of a classifier of one dense layer. {WITHOUT_CLASSIFIER}')
        units = own['units'] if kind == 'Dense' else units
        end = SOFTMAX if kind == 'Softmax' else own.get('activation', 'linear')
        if end not in _ENDS or (end == SIGMOID and units != 1):
            reason = f'its activation is {shown(end)} of {units} outputs, where this program has a softmax'
            raise _refuse(layer, f'{reason}. {WITHOUT_CLASSIFIER}')
        activation = activation if end == 'linear' else end
    return activation
