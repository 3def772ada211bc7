"""Tests of ResNet-50 against `tf.keras.applications`, an independent implementation in TensorFlow."""

import importlib.util
import re
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import resnet
from inception_v3.networks.layers import conv2d
from inception_v3.networks.resnet import resnet50
from tests.support.graphs import plain_session

# The stages then begin with maps of 9 and 5 pixels. Keras' padding equals ours for odd sizes.
SIZE = 33
CLASSES = 7
IMAGES = np.random.RandomState(0).uniform(-1, 1, [2, SIZE, SIZE, 3]).astype(np.float32)


def build(images: Any, is_training: bool = False, classes: int = CLASSES, **options: Any) -> tf.Tensor:
    norm = BatchNorm(is_training, decay=0.9, update_in_place=False)
    logits, auxiliary = resnet50(tf.constant(images), classes, is_training, conv2d, norm, **options)
    assert auxiliary is None
    return logits


def variables() -> Dict[str, tf.Variable]:
    return {v.op.name: v for v in tf.global_variables()}


# Fewer blocks and channels, of the same kinds. Keras counts the stem as the first stage.
SHORT = (resnet.Stage(2, 24, stride=1), resnet.Stage(2, 32, stride=2))


def keras_resnet() -> Any:
    """Returns the network of Keras, of version 1, with the stages of `SHORT`."""
    try:
        # Keras' networks are a separate package with TensorFlow 1.15, and part of Keras with 2.15.
        resnet_common = importlib.import_module('keras_applications.resnet_common')
        parts = {'backend': tf.keras.backend, 'layers': tf.keras.layers, 'models': tf.keras.models}
        parts['utils'] = tf.keras.utils
    except ImportError:
        keras = 'tf_keras' if importlib.util.find_spec('tf_keras') else 'keras'
        resnet_common, parts = importlib.import_module(f'{keras}.src.applications.resnet'), {}

    def stack(net: Any) -> Any:
        for number, stage in enumerate(SHORT, 2):
            net = resnet_common.stack1(net, stage.depth, stage.blocks, stride1=stage.stride, name=f'conv{number}')
        return net

    return resnet_common.ResNet(stack, False, True, weights=None, input_shape=(SIZE, SIZE, 3), classes=CLASSES, **parts)


def keras_version_1_5() -> Any:
    """Returns the network of Keras with the strides of version 1.5 and without the softmax."""
    config = keras_resnet().get_config()
    settings = {layer['name']: layer['config'] for layer in config['layers']}
    for stage in range(3, len(SHORT) + 2):
        first, second = (settings[f'conv{stage}_block1_{number}_conv'] for number in (1, 2))
        assert (first['strides'], second['strides']) == ((2, 2), (1, 1)), 'version 1'
        first['strides'], second['strides'] = (1, 1), (2, 2)
    config['layers'][-1]['config']['activation'] = 'linear'
    return tf.keras.Model.from_config(config)


def keras_name(name: str) -> Tuple[str, str]:
    """Returns the names of the layer and the weight in Keras for a variable of this program.

    The layer of the classes is called `last`, because its name depends on Keras' version.
    """
    *scope, kind = name.split('/')[1:]
    weight = {'weights': 'kernel', 'biases': 'bias', 'moving_mean': 'moving_mean'}.get(kind, kind)
    layer = 'conv' if kind == 'weights' else 'bn'
    if scope[0] == 'logits':
        return 'last', weight
    if scope[0] == 'stem':
        return f'conv1_{layer}', weight
    number = {'shortcut': 0, 'conv_1': 1, 'conv_2': 2, 'conv_3': 3}[scope[2]]
    stage, block = int(scope[0][len('stage_') :]) + 1, int(scope[1][len('block_') :])
    return f'conv{stage}_block{block}_{number}_{layer}', weight


def test_resnet50__has_the_logits_of_keras_with_the_same_weights(monkeypatch: Any) -> None:
    monkeypatch.setattr(resnet, 'STAGES', SHORT)
    drawn = np.random.RandomState(1)
    model = keras_version_1_5()
    logits = build(IMAGES)
    with plain_session() as session:
        session.run(tf.global_variables_initializer())
        given: Dict[tf.Variable, np.ndarray] = {}
        for name, variable in variables().items():
            if not name.startswith('ResNet50/'):
                continue
            layer, weight = keras_name(name)
            of = model.layers[-1] if layer == 'last' else model.get_layer(layer)
            (theirs,) = [w for w in of.weights if w.op.name.endswith(f'/{weight}')]
            shape = variable.shape.as_list()
            spread = np.sqrt(2 / np.prod(shape[:-1])) if weight == 'kernel' else 0.1
            value = drawn.normal(0.0, spread, shape) + (weight in ('gamma', 'moving_variance'))
            value = np.abs(value) if weight == 'moving_variance' else value
            given[variable] = value
            given[theirs] = value.reshape(theirs.shape.as_list())
        session.run([v.initializer for v in given], {v.initializer.inputs[1]: value for v, value in given.items()})
        # The convolutions of Keras also have biases, which start at 0 and are cancelled by normalization.
        left = {w.name for w in model.weights} - {v.name for v in given}
        blocks = sum(stage.blocks for stage in SHORT)
        assert len(left) == 1 + 3 * blocks + len(SHORT) and all(re.search('_conv(_1)?/bias:0$', name) for name in left)
        expected, found = session.run([model.output, logits], {model.input: IMAGES})
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


# Four stages of one block.
@pytest.mark.parametrize(('size', 'map_size'), [(32, 1), (299, 10)])
def test_resnet50__last_map_is_a_32nd_of_the_image(size: int, map_size: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(resnet, 'STAGES', [stage._replace(blocks=1) for stage in resnet.STAGES])
    resnet50(tf.zeros([1, size, size, 3]), CLASSES, False, conv2d, lambda net, *_, **__: net, depth_multiplier=0.1)
    last = tf.get_default_graph().get_tensor_by_name('ResNet50/stage_4/block_1/Relu_2:0')
    assert last.shape.as_list() == [1, map_size, map_size, int(2048 * 0.1)]


def test_zero_init_last_scale__blocks_begin_as_the_identity(monkeypatch: Any) -> None:
    monkeypatch.setattr(resnet, 'STAGES', SHORT)
    logits = build(IMAGES, zero_init_last_scale=True)
    graph = tf.get_default_graph()
    zero = [name for name in variables() if name.endswith('conv_3/BatchNorm/gamma')]
    assert len(zero) == 4
    with plain_session() as session:
        session.run(tf.global_variables_initializer())
        assert all((session.run(v) == (name not in zero)).all() for name, v in variables().items() if 'gamma' in name)
        first, second = session.run(
            [graph.get_tensor_by_name(f'ResNet50/stage_2/block_{block}/Relu_2:0') for block in (1, 2)]
        )
        assert np.isfinite(session.run(logits)).all()
    np.testing.assert_array_equal(first, second)
    assert (first > 0).any()


def test_bfloat16__activations_have_float32_variables(monkeypatch: Any) -> None:
    monkeypatch.setattr(resnet, 'STAGES', SHORT)
    logits = build(IMAGES.astype(tf.bfloat16.as_numpy_dtype), depth_multiplier=0.1)
    assert logits.dtype == tf.bfloat16
    assert {v.dtype.base_dtype for v in variables().values()} == {tf.float32}
