"""Reads the configuration of a model of Keras: the pixels that its Inception v3 is given, and its classifier.

What a linear layer can carry is carried: the scaling of pixels and the order of their channels. A configuration that
computes anything else than Inception v3 is refused by the name of its layer.
"""

import collections
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from console.errors import CommandError
from console.messages import shown
from inception_v3.batch_norm import EPSILON

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
# The names of TensorFlow's operations and of Keras 3 for a value and a constant, and the scale and the shift of each.
_OPERATIONS = (
    (('math.add', '__operators__.add', 'nn.bias_add', 'Add'), lambda c: (1, c)),
    (('math.subtract', 'Subtract'), lambda c: (1, -c)),
    (('math.multiply', 'Multiply'), lambda c: (c, 0)),
    (('math.truediv', 'math.divide', 'TrueDivide', 'Divide'), lambda c: (1 / c, 0)),
)
_REVERSED = [{'class_name': '__ellipsis__'}, {'start': None, 'stop': None, 'step': -1}]
_SAME = [0, 1, 2]
# The errors of reading a part of a configuration that has another form.
FORM_ERRORS = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class KerasError(CommandError):
    """A file of Keras holds weights of another network."""


class Form(NamedTuple):
    """The parts of a model around its Inception v3.

    Attributes:
      scale, shift: of each channel that the network is given, [3]: scale x pixel + shift for pixels in [0, 255].
      order: the number of the pixel's channel that each of them is.
      is_scaled: whether the model changes the pixels' values; if not, the caller does.
      activation: of the classifier, `SOFTMAX` or, with one output, `SIGMOID`. Logits are taken for those of a softmax.
    """

    scale: np.ndarray
    shift: np.ndarray
    order: List[int]
    is_scaled: bool
    activation: str


def read(config: Mapping[str, Any], classifier: bool) -> Form:
    """Reads a configuration as of `model.to_json()`, with or without its classifier.

    Raises `KerasError` if the model computes something else, and one of `FORM_ERRORS` if it is no configuration.
    """
    layers = [*_layers(config)]
    convs = [number for number, layer in enumerate(layers) if layer['class_name'] == 'Conv2D']
    if not convs:
        raise KerasError('its configuration has no convolutions.')
    after = layers[convs[-1] + 1 :]
    _check_body(layers[convs[0] : convs[-1] + 1], _SHAPES)
    # The end of the last block is listed after its last convolution.
    end = next((number for number, layer in enumerate(after) if not _is_of_block(layer)), len(after))
    _check_body(after[:end], {})
    form = _front(layers[: convs[0]])
    return form._replace(activation=_head(after[end:])) if classifier else form


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


def _check_body(layers: Sequence[Mapping[str, Any]], shapes: Mapping[Tuple[Any, ...], int]) -> None:
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
            if found[shape] > shapes.get(shape, 0):
                raise _refuse(layer, f'Inception v3 has {shapes.get(shape, 0)} of its kind, strides and padding')
    if sum(found.values()) < sum(shapes.values()):
        raise KerasError('its configuration has fewer convolutions or pools than Inception v3.')


def _front(layers: Sequence[Mapping[str, Any]]) -> Form:
    """The layers before the first convolution."""
    scale, shift, order = np.ones(3), np.zeros(3), _SAME
    is_scaled = False
    for layer in layers:
        # Augmentation has no effect in evaluation.
        if layer['class_name'] in _IDENTITIES or layer['class_name'].startswith('Random'):
            continue
        if len(layer.get('inbound_nodes', [])) > 1:
            raise _refuse(layer, 'it is called more than once')
        try:
            turned, times, plus = _step(layer)
        except FORM_ERRORS:
            raise _refuse(layer, 'before the network, only a scaling and an order of channels can be imported')
        order, scale, shift = [order[c] for c in turned], scale[turned] * times, shift[turned] * times + plus
        is_scaled = is_scaled or bool(np.any(times != np.ones(3)) or np.any(plus))
        if not np.isfinite([scale, shift]).all() or (is_scaled and (np.abs(scale) > 1).any()):
            raise _refuse(layer, 'it is for other pixels than those in [0, 255]')
    return Form(scale, shift, order, is_scaled, SOFTMAX)


def _step(layer: Mapping[str, Any]) -> Tuple[List[int], Any, Any]:
    """The channels that a layer takes, and what it multiplies them with and adds. Raises `FORM_ERRORS` for others."""
    kind, own = layer['class_name'], layer['config']
    if kind == 'Rescaling':
        return _SAME, _of_channels(own['scale']), _of_channels(own['offset'])
    if kind == 'Normalization':
        if own['axis'] not in ([-1], [3], -1, 3) or own.get('invert'):
            raise ValueError
        deviation = np.maximum(np.sqrt(_of_channels(own['variance'])), _LEAST)
        return _SAME, 1 / deviation, -_of_channels(own['mean']) / deviation
    operation, constants = own.get('function', kind), _constants(layer)
    if (operation == '__operators__.getitem' and constants['slice_spec'] == _REVERSED) or (
        operation == 'reverse' and constants['axis'] in ([-1], [3])
    ):
        return _SAME[::-1], 1, 0
    if operation.endswith('gather') and constants['axis'] in (-1, 3) and sorted(constants['indices']) == _SAME:
        return constants['indices'], 1, 0
    if operation in ('cast', 'Cast') and constants['dtype'] in ('float32', 'float64'):
        return _SAME, 1, 0
    (constant,) = [_of_channels(each) for name, each in constants.items() if name in ('y', 'bias')]
    (compute,) = [compute for names, compute in _OPERATIONS if operation in names]
    with np.errstate(divide='raise'):
        return (_SAME, *compute(constant))


def _of_channels(value: Any) -> np.ndarray:
    """A number, or three."""
    values = np.broadcast_to(np.asarray(value, np.float64).reshape(-1), 3)
    if not np.isfinite(values).all():
        raise ValueError
    return values


def _constants(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of an operation beside its input."""
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
    """The activation of the classifier after the last block."""
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
