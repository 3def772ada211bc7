"""Tests of reading the layers and the configuration of a model of Keras; `test_frameworks.py` has Keras' own files."""

import io
import json
from typing import Any, Dict, List

import h5py
import numpy as np
import pytest
from tensorflow.core.protobuf import trackable_object_graph_pb2

from inception_v3.weights.sources import OBJECT_GRAPH, WeightsError
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
        ([], [DENSE], [], 'Dense'),
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
    with pytest.raises(WeightsError, match=r'a\.h5: is not a model of Keras, or is damaged'):
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


@pytest.mark.parametrize(
    ('scale', 'offset', 'ends'),
    [
        # Images of the network are in [0, 255] as long as the largest pixel is at most 20.
        (20 / 255, 0.0, (0, 20)),
        (-20 / 255, 0.0, (0, -20)),
        (19 / 255, -20.0, (-20, -1)),
        # Otherwise, they are in [0, 1].
        (20.0, 0.0, (0, 20)),
        (1.0, 0.5, (0.5, 1.5)),
        (40.0, -20.0, (-20, 20)),
        (21 / 255, 0.0, None),
        (0.99, 0.0, None),
        (20.1, 0.0, None),
        (1.0, -20.1, None),
    ],
)
def test_check_config__tells_scaling_for_bytes_from_that_for_fractions(scale: float, offset: float, ends: Any) -> None:
    config = model([layer('Rescaling', scale=scale, offset=offset)], [])
    if ends is None:
        with pytest.raises(WeightsError, match=r'has the layer Rescaling \(rescaling\)'):
            keras_files.check_config(config, classifier=False, path='a.h5')
    else:
        images = keras_files.check_config(config, classifier=False, path='a.h5').images
        assert images is not None
        np.testing.assert_allclose([images.shift, images.shift + images.scale], np.repeat(ends, 3).reshape(2, 3))


def test_check_config__composes_scalings_in_their_order() -> None:
    front = [layer('Rescaling', scale=1 / 255, offset=0.5), layer('InputLayer'), layer('Rescaling', scale=4, offset=-1)]
    images = keras_files.check_config(model(front, []), classifier=False, path='a.h5').images
    assert images is not None
    np.testing.assert_allclose([images.scale, images.shift], [[4] * 3, [1] * 3])
    nothing = keras_files.check_config(model([layer('Rescaling', scale=1, offset=0)], []), classifier=False, path='a')
    assert nothing.images is None
    # A deviation of 0 counts as 1e-7, as in Keras.
    constant = layer('Normalization', mean=[0.0], variance=[0.0])
    with pytest.raises(WeightsError, match='has the layer Normalization'):
        keras_files.check_config(model([constant], []), classifier=False, path='a.h5')


RESIZED = '  its layer Resizing is replaced by the resizing of evaluation, to 75 x 80'


@pytest.mark.parametrize(
    ('front', 'size', 'notes'),
    [
        ([layer('InputLayer', batch_input_shape=[None, 200, 250, 3])], (200, 250), []),
        ([layer('InputLayer', batch_shape=[None, 200, 250, 3])], (200, 250), []),
        ([layer('InputLayer', batch_shape=[None, None, 250, 3])], None, []),
        ([layer('InputLayer', batch_shape=[None, 200, None, 3])], None, []),
        ([layer('Resizing', height=75, width=80)], (75, 80), [RESIZED]),
        (
            [layer('InputLayer', batch_shape=[8, 75, 80, 3]), layer('Resizing', height=75.0, width=80)],
            (75, 80),
            [RESIZED],
        ),
        (
            [layer('InputLayer', batch_shape=[8, 200, 250, 3]), layer('Resizing', height=75, width=80)],
            (75, 80),
            [f'{RESIZED}; there, images have 200 x 250 pixels first'],
        ),
        (
            [layer('Resizing', height=75, width=80), layer('Resizing', height=90, width=80)],
            (90, 80),
            [RESIZED, f'{RESIZED[:-7]}90 x 80; there, images have 75 x 80 pixels first'],
        ),
    ],
)
def test_check_config__has_the_size_of_the_network_input(front: List[Any], size: Any, notes: List[str]) -> None:
    found = keras_files.check_config(model(front, []), classifier=False, path='a.h5')
    assert (found.origin, found.size, found.notes, found.images) == ('a.h5', size, notes, None)


@pytest.mark.parametrize(
    ('nodes', 'number'),
    [
        ([[['input', 0, 0, {'y': 3}]]], 3),
        ([['input', 0, 0, {'y': 3.5}]], 3.5),
        ([{'args': [{'class_name': '__keras_tensor__'}, 3], 'kwargs': {}}], 3),
        # A number minus the image, two images, nothing, and a division by zero.
        ([[['_CONSTANT_VALUE', -1, 3, {'y': ['input', 0, 0]}]]], None),
        ([{'args': [3, {'class_name': '__keras_tensor__'}], 'kwargs': {}}], None),
        ([[['input', 0, 0, {'y': ['other', 0, 0]}]]], None),
        ([[['input', 0, 0, {}]]], None),
        ([[['input', 0, 0, {'y': 0}]]], None),
        ([[['input', 0, 0, {'y': True}]]], None),
        ([{'args': [{'class_name': '__keras_tensor__'}, 3, 4], 'kwargs': {}}], None),
    ],
)
def test_number_of_an_operation__is_its_second_operand(nodes: Any, number: Any) -> None:
    assert keras_files._number_of({'inbound_nodes': nodes}) == number


def test_fields__are_those_of_a_message_of_protocol_buffers() -> None:
    long = bytes(range(256)) * 65
    parts = [
        b'\x08\x96\x01',  # Field 1: the number 150, in two bytes.
        b'\x12\x03abc',  # Field 2, a text.
        b'\x19' + b'\x12' * 8 + b'\x25' + b'\x12' * 4,  # Fields 3 and 4, of 8 and 4 bytes.
        b'\x8a\x01\x80\x82\x01' + long,  # Field 17, of 16,640 bytes.
        b'\x12\x00',
        b'\xf8\xff\x01\x00',  # A number in field 4,095.
    ]
    assert len(long) == 16640 and keras_files._fields(b''.join(parts)) == {2: [b'abc', b''], 17: [long]}
    assert keras_files._fields(b'') == {}


def node(path: str, description: Any) -> bytes:
    content = b'\x1a' + bytes([len(path)]) + path.encode() + b'\x2a' + sized(json.dumps(description).encode())
    return b'\x0a' + sized(content)


def sized(content: bytes) -> bytes:
    return bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def test_metadata__has_the_configuration_of_the_outermost_model() -> None:
    shape = {'class_name': '__tuple__', 'items': [None, 150]}
    config = {'class_name': 'Functional', 'config': {'layers': [{'batch_input_shape': shape}]}}
    inner = node('root.layer-0', {'config': {'layers': []}})
    found = keras_files._config_in(inner + node('root', config))
    assert found == {'class_name': 'Functional', 'config': {'layers': [{'batch_input_shape': [None, 150]}]}}
    for other in (inner, node('root', {'config': {'name': 'a'}}), node('root', {'config': None}), b'\x0a\x02\x1a\x00'):
        assert keras_files._config_in(other) is None


NORM = ('gamma', 'beta', 'moving_mean', 'moving_variance')


def test_layers_by_position__are_those_of_models_in_models_too() -> None:
    content = io.BytesIO()
    kernel, vector = np.zeros([1, 2, 3, 4], np.float32), np.arange(4, dtype=np.float32)
    layers = {
        'conv2d': [kernel, vector],
        'batch_normalization': [vector, vector + 1, vector + 2],
        'batch_normalization_10': [vector, vector + 1, vector + 2, vector + 3],
        'inner/layers/dense': [kernel[0, 0], vector],
        'seed_generator': [np.arange(2)],
        'flatten': [],
    }
    with h5py.File(content, 'w') as file:
        for name, arrays in layers.items():
            group = file.create_group(f'_layer_checkpoint_dependencies/{name}/vars')
            for number, array in enumerate(arrays):
                group[str(number)] = array
    found = keras_files.read(content.getvalue())
    assert (found.is_by_order, found.config) == (True, None)
    assert found.numbers == {'conv2d': 1, 'batch_normalization': 2, 'dense': 1, '': 3}
    np.testing.assert_equal(
        found.arrays,
        {
            **{
                'conv2d_0/kernel': kernel,
                'conv2d_0/bias': vector,
                'dense_0/kernel': kernel[0, 0],
                'dense_0/bias': vector,
            },
            **{f'batch_normalization_0/{name}': vector + number for number, name in enumerate(NORM[1:])},
            **{f'batch_normalization_1/{name}': vector + number for number, name in enumerate(NORM)},
        },
    )


def test_write__lists_layers_as_keras_does() -> None:
    with h5py.File(io.BytesIO(keras_file()), 'r') as file:
        # Some versions of h5py give bytes, others texts.
        names = [*np.array(file.attrs['layer_names'], str)]
        # As files of Keras that this layout is of.
        assert [*map(str, np.array([file.attrs['backend'], file.attrs['keras_version']], str))] == [
            *('tensorflow', '2.2.4-tf')
        ]
        of_weights = [[*np.array(file[name].attrs['weight_names'], str)] for name in names]
    assert (len(names), names[-1]) == (2 * 94 + 1, 'predictions')
    # Mixed_5b, after five convolutions: by the distance from its beginning.
    convs = [[8], [6, 9], [5, 7, 10, 11]]
    expected = [f'{kind}_{n}' for each in convs for kind in ('conv2d', 'batch_normalization') for n in each]
    assert names[:4] == ['conv2d', 'batch_normalization', 'conv2d_1', 'batch_normalization_1']
    assert names[10:24] == expected
    # The other blocks by their first convolutions: Mixed_6a, 6b, 7a and 7b, as Keras 3.15 lists its own model.
    for block in (
        'c27 b27 c28 b28 c26 c29 b26 b29',
        'c34 b34 c35 b35 c31 c36 b31 b36 c32 c37 b32 b37 c30 c33 c38 c39 b30 b33 b38 b39',
        'c72 b72 c73 b73 c70 c74 b70 b74 c71 c75 b71 b75',
        'c80 b80 c77 c81 b77 b81 c78 c79 c82 c83 c76 b78 b79 b82 b83 c84 b76 b84',
    ):
        own = [{'c': 'conv2d', 'b': 'batch_normalization'}[each[0]] + f'_{each[1:]}' for each in block.split()]
        begin = names.index(own[0])
        assert names[begin : begin + len(own)] == own
    assert of_weights[0] == ['conv2d/kernel:0'] and of_weights[-1] == ['predictions/kernel:0', 'predictions/bias:0']
    assert of_weights[1] == [f'batch_normalization/{name}:0' for name in NORM[1:]]


def test_variables__are_numbered_by_their_layers_and_not_by_the_alphabet() -> None:
    values = {f'net/conv2d_{n}/kernel': np.full([1, 1, 1, 1], n, np.float32) for n in (2, 10, 9)}
    others = {'net/conv2d_3/counter': np.zeros(1), 'kernel': np.zeros(1), 'net/random/kernel': np.zeros(1, np.int64)}
    found = keras_files.of_variables({**values, **others})
    assert [int(found.arrays[f'conv2d_{place}/kernel'].item()) for place in range(3)] == [2, 9, 10]
    assert (found.numbers, found.is_by_order) == ({'conv2d': 3}, False)
    for wrong in ({'net/conv1d/kernel': np.zeros([1, 1, 1])}, {'net/scale/gamma': np.zeros(1)}):
        with pytest.raises(ValueError, match='is neither convolution nor normalization nor classifier'):
            keras_files.of_variables(wrong)
    layers = architecture.inception(NARROW).of(auxiliary_head=False)
    with pytest.raises(
        WeightsError, match=r'^a: is not Inception .* 3 convolutions, 0 .* 0 dense .* not 94, 94 and one'
    ):
        keras_files.check_network(found, layers, True, 'a')
    two = found._replace(numbers={'conv2d': 94, 'batch_normalization': 94, 'dense': 2})
    keras_files.check_network(two, layers, False, 'a')
    keras_files.check_network(two._replace(numbers={**two.numbers, 'dense': 1}), layers, True, 'a')
    with pytest.raises(WeightsError, match=r'^a: its classifier has 2 dense layers, not one'):
        keras_files.check_network(two, layers, True, 'a')


def test_by_full_name__leaves_slots_and_counters_out() -> None:
    graph, values = trackable_object_graph_pb2.TrackableObjectGraph(), {}
    for key, full_name in (
        ('model/layer-1/kernel', 'conv2d/kernel'),
        ('model/layer-1/bias', ''),
        ('model/layer-2/kernel', 'conv2d/kernel'),
        ('model/layer-1/kernel/.OPTIMIZER_SLOT/optimizer/m', 'Adam/conv2d/kernel/m'),
        ('optimizer/iter', 'Adam/iter'),
        ('save_counter', ''),
    ):
        key = f'{key}/.ATTRIBUTES/VARIABLE_VALUE'
        graph.nodes.add().attributes.add(name='VARIABLE_VALUE', full_name=full_name, checkpoint_key=key)
        values[key] = np.float32([3])
    graph.nodes.add().attributes.add(name='VARIABLE_VALUE', full_name='gone', checkpoint_key='gone')
    graph.nodes.add().attributes.add(name='OBJECT_CONFIG_JSON', checkpoint_key='model/layer-1/kernel')
    serialized = graph.SerializeToString()
    for description in (serialized, np.array(serialized, object)):
        found = keras_files.by_full_name({**values, OBJECT_GRAPH: description})
        assert found == {'conv2d/kernel': 3, 'model/layer-1/bias': 3}
    values['model/layer-2/kernel/.ATTRIBUTES/VARIABLE_VALUE'] = np.float32([4])
    with pytest.raises(ValueError, match='it has several models: two of its variables are conv2d/kernel'):
        keras_files.by_full_name({**values, OBJECT_GRAPH: serialized})
