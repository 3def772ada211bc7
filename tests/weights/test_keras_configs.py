"""Tests of reading the configuration of a model of Keras; `test_frameworks.py` has Keras' own files."""

import collections
import copy
import functools
import io
import json
from typing import Any, Dict, List

import h5py
import numpy as np
import pytest

from inception_v3.commands.weights import architecture, foreign, keras_files
from inception_v3.commands.weights.keras_files import SIGMOID, SOFTMAX, KerasError
from inception_v3.weights.sources import WeightsError
from tests.support.weights import CLASSES, NARROW, narrow, values_of

NODE = 'inbound_nodes'


def layer(kind: str, *node: Any, **config: Any) -> Dict[str, Any]:
    nodes = {NODE: [['before', 0, 0, *node]]} if node else {}
    return {'class_name': kind, 'config': {'name': kind.lower(), **config}, **nodes}


def operation(function: str, kind: str = 'TFOpLambda', **constants: Any) -> Dict[str, Any]:
    return layer(kind, constants, function=function)


def conv(strides: int, padding: str) -> List[Dict[str, Any]]:
    settings = {'data_format': 'channels_last', 'dilation_rate': [1, 1], 'groups': 1, 'activation': 'linear'}
    return [
        layer('Conv2D', strides=[strides] * 2, padding=padding, **settings),
        layer('BatchNormalization', axis=[3], epsilon=0.001),
        layer('Activation', activation='relu'),
    ]


def pool(kind: str, strides: int, padding: str) -> Dict[str, Any]:
    return layer(f'{kind}Pooling2D', strides=[strides] * 2, padding=padding, pool_size=[3, 3])


def body() -> List[Dict[str, Any]]:
    """The layers of Keras' Inception v3 by their numbers; their connections are not read."""
    convs = [*conv(2, 'valid') * 5, *conv(1, 'valid') * 3, *conv(1, 'same') * 85]
    pools = [pool('Max', 2, 'valid')] * 4 + [pool('Average', 1, 'same')] * 9
    return copy.deepcopy([*convs, *pools, *conv(1, 'same'), layer('Concatenate', axis=3)])


POOL, DENSE = layer('GlobalAveragePooling2D'), layer('Dense', units=5, activation='softmax')
HEAD = [POOL, layer('Dropout', rate=0.2), DENSE]


def model(front: List[Any], head: List[Any], network: Any = None) -> Dict[str, Any]:
    """A Sequential with the network as a model in it."""
    inner = {'class_name': 'Functional', 'config': {'name': 'inception_v3', 'layers': network or body()}}
    return json.loads(json.dumps({'class_name': 'Sequential', 'config': {'layers': [*front, inner, *head]}}))


SLICE = [{'class_name': '__ellipsis__'}, {'start': None, 'stop': None, 'step': -1}]
REVERSE = operation('__operators__.getitem', 'SlicingOpLambda', slice_spec=SLICE)
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SCALE, SHIFT = [0.1, 0.2, 0.3], [1, 2, 3]
OF_CHANNELS, TO_1 = layer('Rescaling', scale=SCALE, offset=SHIFT), layer('Rescaling', scale=1 / 255, offset=0.0)
TWICE = {**TO_1, NODE: [[['a', 0, 0, {}]], [['b', 0, 0, {}]]]}


def keras_3(kind: str, *constants: Any) -> Dict[str, Any]:
    return {**layer(kind), NODE: [{'args': [{'class_name': '__keras_tensor__'}, *constants], 'kwargs': {}}]}


FRONTS: Dict[str, Any] = {
    'none': ([], lambda x: x),
    'rescaling': ([TO_1], lambda x: x / 255),
    'per channel': ([OF_CHANNELS], lambda x: x * SCALE + SHIFT),
    'augmented': ([layer('RandomFlip'), layer('Resizing', height=9), operation('cast', dtype='float32')], lambda x: x),
    'caffe': ([REVERSE, operation('nn.bias_add', bias=[-104, -117, -124])], lambda x: x[..., ::-1] - [104, 117, 124]),
    'scaled, then reversed': ([OF_CHANNELS, REVERSE], lambda x: (x * SCALE + SHIFT)[..., ::-1]),
    'rotated twice': ([operation('gather', indices=[1, 2, 0], axis=-1)] * 2, lambda x: x[..., [2, 0, 1]]),
    'turned': ([operation('reverse', axis=[3]), operation('math.multiply', y=0.5)], lambda x: x[..., ::-1] * 0.5),
    'normalization': (
        [layer('Normalization', axis=[-1], mean=SHIFT, variance=[4, 9, 16])],
        lambda x: (x - SHIFT) / [2, 3, 4],
    ),
    'imagenet': (
        [TO_1, operation('math.subtract', y=MEAN), operation('math.truediv', y=DEVIATION)],
        lambda x: (x / 255 - MEAN) / DEVIATION,
    ),
    'Keras 3': ([keras_3('TrueDivide', 127.5), keras_3('Subtract', 1.0)], lambda x: x / 127.5 - 1),
}


REFUSED_FRONTS = {
    'Lambda .lambda.: before the network, only': layer('Lambda', function=['code']),
    'Normalization.*only': layer('Normalization', axis=[-1], mean=None, variance=None),
    'Rescaling .* for other pixels': layer('Rescaling', scale=2.0, offset=-1),
    'math.subtract': operation('math.subtract', y=['other', 0, 0]),
    'math.truediv': operation('math.truediv', y=0.0),
    'Rescaling .*more than once': TWICE,
    'Concatenate': layer('Concatenate', axis=3),
    'getitem': operation('__operators__.getitem', 'SlicingOpLambda', slice_spec=[SLICE[1], SLICE[1]]),
    'gather': operation('gather', indices=[0, 0, 2], axis=-1),
    'reverse': operation('reverse', axis=[1]),
    'cast': operation('cast', dtype='uint8'),
}


@pytest.mark.parametrize('message', [*REFUSED_FRONTS])
def test_read__refuses_what_no_first_layer_carries(message: str) -> None:
    for classifier in (True, False):
        with pytest.raises(KerasError, match=f'its configuration has the layer .*{message}'):
            keras_files.read_config(model([REFUSED_FRONTS[message]], HEAD), classifier)


@pytest.mark.parametrize(
    ('head', 'activation', 'message'),
    [
        ([], SOFTMAX, ''),
        ([POOL, layer('Dense', units=5), layer('Softmax')], SOFTMAX, ''),
        ([POOL, layer('Flatten'), layer('Dense', units=1, activation='sigmoid')], SIGMOID, ''),
        ([POOL, layer('Dense', units=1, activation='linear'), layer('Activation', activation='sigmoid')], SIGMOID, ''),
        ([POOL, layer('GlobalMaxPooling2D'), DENSE], '', 'follows one GlobalAveragePooling2D'),
        ([layer('Flatten'), DENSE], '', 'Flatten .*follows one GlobalAveragePooling2D'),
        ([POOL, layer('Dense', units=4, activation='sigmoid')], '', 'sigmoid of 4 outputs'),
        ([POOL, layer('Dense', units=9, activation='relu'), DENSE], '', 'relu of 9 outputs'),
        ([POOL, layer('LayerNormalization'), DENSE], '', 'LayerNormalization'),
    ],
)
def test_read__knows_the_classifier_or_refuses_it(head: List[Any], activation: str, message: str) -> None:
    if message:
        with pytest.raises(KerasError, match=f'{message}.*--no_classifier'):
            keras_files.read_config(model([], head), classifier=True)
        assert not keras_files.read_config(model([], head), classifier=False).is_scaled
    else:
        assert keras_files.read_config(model([], head), classifier=True).activation == activation


@pytest.mark.parametrize(
    ('kind', 'setting', 'value'),
    [
        ('Conv2D', 'strides', [1, 1]),
        ('Conv2D', 'padding', 'same'),
        ('Conv2D', 'dilation_rate', [2, 2]),
        ('Conv2D', 'activation', 'relu'),
        ('Conv2D', 'data_format', 'channels_first'),
        ('BatchNormalization', 'epsilon', 1e-5),
        ('Activation', 'activation', 'swish'),
        ('AveragePooling2D', 'pool_size', [2, 2]),
        ('MaxPooling2D', 'padding', 'same'),
    ],
)
def test_read__refuses_another_network_of_the_same_weights(kind: str, setting: str, value: Any) -> None:
    network = body()
    changed = next(each for each in network if each['class_name'] == kind)
    changed['config'][setting] = value
    with pytest.raises(KerasError, match=f'its configuration has the layer {kind}'):
        keras_files.read_config(model([], HEAD, network), classifier=True)


def test_read__needs_all_layers_and_no_others() -> None:
    whole = body()
    assert collections.Counter(each['class_name'] for each in whole)['Conv2D'] == 94
    for network, message in (
        ([*whole[:2], pool('Max', 2, 'valid'), *whole[2:]], 'MaxPooling2D .*has 4 of its kind'),
        ([*whole[:3], layer('ReLU', max_value=6), *whole[3:]], 'ReLU .*Inception v3 has none'),
        (whole[3:], 'has fewer convolutions or pools'),
        ([POOL], 'has no convolutions'),
    ):
        with pytest.raises(KerasError, match=message):
            keras_files.read_config(model([], HEAD, network), classifier=True)


@pytest.mark.parametrize('name', [*FRONTS])
def test_read__computes_the_front_as_one_linear_layer(name: str) -> None:
    front, compute = FRONTS[name]
    form = keras_files.read_config(model(front, HEAD), classifier=True)
    pixels = np.random.RandomState(0).uniform(0, 255, [9, 3])
    np.testing.assert_allclose(pixels @ form.matrix + form.shift, compute(pixels), rtol=1e-6, atol=1e-6)
    assert form.is_scaled == (name not in ('none', 'augmented', 'rotated twice'))


@functools.lru_cache()
def without_config(classes: int) -> bytes:
    network = narrow().architecture
    return keras_files.write(network.of(False), values_of(network, classes))


def written(path: Any, config: Any, monkeypatch: Any, classes: int = CLASSES) -> str:
    """A narrow network in Keras' layout, read as if Keras had it."""
    monkeypatch.setattr(foreign, 'inception', lambda: architecture.inception(NARROW))
    content = io.BytesIO(without_config(classes))
    with h5py.File(content, 'r+') as file:
        if config:
            file.attrs['model_config'] = json.dumps(config)
    path.write_bytes(content.getvalue())
    return str(path)


FIRST = 'InceptionV3/Conv2d_1a_3x3'


@pytest.mark.parametrize('name', ['augmented', 'caffe', 'Keras 3'])
def test_foreign__carries_the_front_into_the_first_layer(name: str, tmp_path: Any, monkeypatch: Any) -> None:
    front, compute = FRONTS[name]
    path = written(tmp_path / 'a.h5', model(front, HEAD), monkeypatch)
    weights = foreign.read(path)
    # A patch of the size of the kernel, as the configuration has it and in [-1, 1].
    pixels = np.random.RandomState(0).uniform(0, 255, [3, 3, 3])
    given = pixels / 127.5 - 1 if name == 'augmented' else compute(pixels)

    def output(values: Any, patch: np.ndarray) -> np.ndarray:
        return np.einsum('hwi,hwio->o', patch, values[f'{FIRST}/weights']) - values[f'{FIRST}/BatchNorm/moving_mean']

    own = output(weights.values, pixels / 127.5 - 1)
    np.testing.assert_allclose(own, output(narrow().values, given), rtol=1e-4, atol=1e-5 * np.abs(given).max())
    if name != 'caffe':
        assert all((value == narrow().values[each]).all() for each, value in weights.values.items())
    assert (weights.images, weights.num_classes) == ('inception', CLASSES)
    if name == 'augmented':
        assert foreign.read(path, foreign.Options(images='imagenet')).images == 'imagenet'
        assert any('assumed: pixels of inception' in note for note in weights.notes)
    else:
        with pytest.raises(WeightsError, match='its configuration scales pixels itself; leave --pixels=imagenet out'):
            foreign.read(path, foreign.Options(images='imagenet'))


def test_foreign__makes_two_classes_of_a_sigmoid_and_refuses_one_logit(tmp_path: Any, monkeypatch: Any) -> None:
    of_sigmoid = model([], [POOL, layer('Dense', units=1, activation='sigmoid')])
    weights = foreign.read(written(tmp_path / 'a.h5', of_sigmoid, monkeypatch, 1))
    features = np.random.RandomState(0).uniform(0, 1, 203)
    scope = narrow().architecture.classifier
    kernel, bias = (weights.values[f'{scope}/{name}'] for name in ('weights', 'biases'))
    logits = features @ kernel[0, 0] + bias
    original = values_of(narrow().architecture, 1)
    logit = features @ original[f'{scope}/weights'][0, 0, :, 0] + original[f'{scope}/biases'][0]
    probability = np.exp(logits[1]) / np.exp(logits).sum()
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-logit)), rtol=1e-5)
    for config in (None, model([], [POOL, layer('Dense', units=1, activation='linear')])):
        with pytest.raises(WeightsError, match=r'its classifier has one output.*--no_classifier'):
            foreign.read(written(tmp_path / 'a.h5', config, monkeypatch, 1))


@pytest.mark.parametrize('config', [{}, {'config': {}}, [], {'config': {'layers': [{'class_name': 'Conv2D'}]}}])
def test_foreign__of_a_damaged_configuration_is_one_message(config: Any, tmp_path: Any, monkeypatch: Any) -> None:
    path = written(tmp_path / 'a.h5', [config], monkeypatch)
    with pytest.raises(WeightsError, match=r'a\.h5: its configuration is damaged'):
        foreign.read(path)
