"""Tests of reading the configuration of a model of Keras; `test_frameworks.py` has Keras' own files."""

import json
from typing import Any, Dict, List

import numpy as np
import pytest

from inception_v3.weights.sources import WeightsError
from tests.support.weights import CLASSES, NARROW, keras_file, narrow
from tools.weights import architecture, foreign, keras_files
from tools.weights.changes import Images


def layer(kind: str, **config: Any) -> Dict[str, Any]:
    return {'class_name': kind, 'config': {'name': kind.lower(), **config}}


def window(kind: str, stride: int, padding: str, size: Any = None) -> Dict[str, Any]:
    return layer(kind, strides=[stride, stride], padding=padding, **({'pool_size': [size, size]} if size else {}))


BODY = [
    *(3 * [window('Conv2D', 1, 'valid')] + 4 * [window('Conv2D', 2, 'valid')] + 86 * [window('Conv2D', 1, 'same')]),
    *(4 * [window('MaxPooling2D', 2, 'valid', 3)] + 9 * [window('AveragePooling2D', 1, 'same', 3)]),
    layer('Conv2D', activation='linear', strides=[2, 2], padding='valid', dilation_rate=[1, 1]),
    layer('BatchNormalization'),
    layer('Activation', activation='relu'),
    layer('Concatenate'),
]
POOL, DENSE = layer('GlobalAveragePooling2D'), layer('Dense', units=5, activation='softmax')
SCALE = layer('Rescaling', scale=1 / 127.5, offset=-1.0)


def model(front: List[Any], head: List[Any], network: Any = None) -> Dict[str, Any]:
    """A Sequential with the network as a model in it."""
    inner = {'class_name': 'Functional', 'config': {'name': 'inception_v3', 'layers': network or BODY}}
    return json.loads(json.dumps({'class_name': 'Sequential', 'config': {'layers': [*front, inner, *head]}}))


@pytest.mark.parametrize(
    ('front', 'head'),
    [
        ([], []),
        ([layer('RandomFlip'), layer('Resizing', height=75, width=75)], [POOL, layer('Dropout', rate=0.2), DENSE]),
        ([SCALE], [POOL, layer('Dense', units=5, activation='linear'), layer('Softmax')]),
    ],
)
def test_check_config__accepts_the_network_and_layers_without_effect(front: List[Any], head: List[Any]) -> None:
    keras_files.check_config(model(front, head), classifier=True, path='a.h5')


@pytest.mark.parametrize(
    ('front', 'network', 'head', 'name'),
    [
        ([layer('Rescaling', scale=1.0, offset=-127.5)], BODY, [], 'Rescaling'),
        ([layer('Resizing', height=75, width=75, interpolation='nearest')], BODY, [], 'Resizing'),
        ([], [*BODY, layer('Resizing', height=75, width=75), BODY[0]], [], 'Resizing'),
        ([layer('Normalization', mean=None, variance=None)], BODY, [], 'Normalization'),
        ([layer('Lambda', function=['code'])], BODY, [], 'Lambda'),
        ([], [layer('Conv2D', activation='relu'), *BODY], [], 'Conv2D'),
        ([], [layer('Activation', activation='swish'), *BODY], [], 'Activation'),
        ([], [layer('BatchNormalization', epsilon=1e-5), *BODY], [], 'BatchNormalization'),
        ([], [layer('Conv2D', dilation_rate=[2, 2]), *BODY], [], 'Conv2D'),
        ([], [layer('Conv2D', data_format='channels_first'), *BODY], [], 'Conv2D'),
        ([], BODY, [POOL, layer('Dense', units=5), layer('Activation', activation='relu')], 'Activation'),
        ([], BODY, [layer('GlobalMaxPooling2D'), DENSE], 'GlobalMaxPooling2D'),
        ([], BODY, [POOL, layer('Dense', units=1, activation='sigmoid')], 'Dense'),
    ],
)
def test_check_config__refuses_any_other_layer_by_name(
    front: List[Any], network: List[Any], head: List[Any], name: str
) -> None:
    refused = pytest.raises(
        WeightsError, match=rf'^a\.h5: its configuration has the layer {name} \({name.lower()}\)\..*--no_classifier'
    )
    with refused:
        keras_files.check_config(model(front, head, network), classifier=True, path='a.h5')
    if head:
        keras_files.check_config(model(front, head, network), classifier=False, path='a.h5')
    else:
        with refused:
            keras_files.check_config(model(front, head, network), classifier=False, path='a.h5')


@pytest.mark.parametrize(
    ('network', 'head'),
    [
        (BODY[1:], []),
        ([window('Conv2D', 1, 'valid'), *BODY[:6], *BODY[7:]], []),
        (BODY, [window('MaxPooling2D', 8, 'valid', 8), layer('Flatten'), DENSE]),
    ],
)
def test_check_config__refuses_other_strides_and_pools(network: List[Any], head: List[Any]) -> None:
    with pytest.raises(WeightsError, match='other convolutions or pools than Inception v3'):
        keras_files.check_config(model([], head, network), classifier=True, path='a.h5')


def written(path: Any, config: Any, monkeypatch: Any, classes: int = CLASSES) -> str:
    """A narrow network in Keras' layout, read as if Keras had it."""
    monkeypatch.setattr(foreign, 'inception', lambda: architecture.inception(NARROW))
    attributes = {'model_config': json.dumps(config)} if config else {}
    path.write_bytes(keras_file(lambda file: file.attrs.update(attributes), classes))
    return str(path)


def test_foreign__reads_a_model_with_a_configuration(tmp_path: Any, monkeypatch: Any) -> None:
    path = written(tmp_path / 'a.h5', model([SCALE], [POOL, DENSE]), monkeypatch)
    weights = foreign.read(path)
    assert all((value == narrow().values[name]).all() for name, value in weights.values.items())
    assert (weights.images, weights.num_classes) == ('inception', CLASSES)
    assert [*weights.notes] == [
        f'  described: pixels in [-1, 1] ({path})',
        '  assumed: images of 299 x 299',
    ]
    with pytest.raises(WeightsError, match=r'scales pixels itself; leave --pixels=imagenet out'):
        foreign.read(path, foreign.Options(pixels='imagenet'))
    for config, classes, message in (
        (model([layer('Lambda')], []), CLASSES, r'a\.h5: its configuration has the layer Lambda'),
        (model([], [POOL, layer('Dense', units=1)]), 1, r'a\.h5: its classifier has one output.*--no_classifier'),
        (None, 1, r'a\.h5: its classifier has one output.*--no_classifier'),
    ):
        with pytest.raises(WeightsError, match=message):
            foreign.read(written(tmp_path / 'a.h5', config, monkeypatch, classes))


@pytest.mark.parametrize('config', [{}, {'config': {}}, [], {'config': {'layers': [{'class_name': 'Conv2D'}]}}])
def test_foreign__of_a_damaged_configuration_is_one_message(config: Any, tmp_path: Any, monkeypatch: Any) -> None:
    path = written(tmp_path / 'a.h5', [config], monkeypatch)
    with pytest.raises(WeightsError, match=r'a\.h5: is no model of Keras, or is damaged'):
        foreign.read(path)


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZATION = layer('Normalization', mean=[[MEAN]], variance=[[[std**2 for std in STD]]])


@pytest.mark.parametrize(
    ('front', 'scale', 'shift'),
    [
        ([layer('Normalization', mean=[127.5], variance=[127.5**2])], [2, 2, 2], [-1, -1, -1]),
        ([layer('Rescaling', scale=1 / 255, offset=0.0), NORMALIZATION], 1 / np.array(STD), np.array(MEAN) / STD * -1),
        # The images of the model are in [0, 1].
        ([NORMALIZATION], 1 / np.array(STD), np.array(MEAN) / STD * -1),
        ([layer('Rescaling', scale=2.0, offset=-1.0)], [2, 2, 2], [-1, -1, -1]),
    ],
)
def test_check_config__tells_the_effect_of_layers_on_pixels(front: List[Any], scale: Any, shift: Any) -> None:
    images = keras_files.check_config(model(front, []), classifier=False, path='a.h5').images
    assert isinstance(images, Images)
    np.testing.assert_allclose(images.scale, scale)
    np.testing.assert_allclose(images.shift, shift)


def operation(kind: str, number: float) -> Dict[str, Any]:
    """A layer that Keras makes of an operation: Keras 2 names functions of TensorFlow, Keras 3 has a class for each."""
    if kind[0].isupper():
        node: Any = {'args': [{'class_name': '__keras_tensor__'}, number], 'kwargs': {}}
        return {**layer(kind), 'inbound_nodes': [node]}
    return {**layer('TFOpLambda', function=kind), 'inbound_nodes': [['input', 0, 0, {'y': number}]]}


@pytest.mark.parametrize(
    'operations',
    [
        [('math.multiply', 1 / 127.5), ('math.subtract', 1.0)],
        [('math.truediv', 127.5), ('math.add', -1.0)],
        [('math.divide', 127.5), ('__operators__.add', -1.0)],
        [('Multiply', 1 / 127.5), ('Add', -1.0)],
        [('TrueDivide', 127.5), ('Subtract', 1.0)],
        [('Subtract', 127.5), ('Divide', 127.5)],
    ],
)
def test_check_config__knows_the_operations_on_pixels_of_keras_2_and_3(operations: Any) -> None:
    front = [operation(*each) for each in operations]
    images = keras_files.check_config(model(front, []), classifier=False, path='a.h5').images
    assert isinstance(images, Images) and images.name == 'inception'
