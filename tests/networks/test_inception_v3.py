"""Tests of Inception v3 against TF-Slim, an independent implementation in TensorFlow 1.15."""

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import tensorflow as tf

from inception_v3.batch_norm import BatchNorm
from inception_v3.networks.inception_v3 import inception_v3
from inception_v3.networks.layers import conv2d

NUM_CLASSES = 1001
# Relative to the largest gradient of a variable, because gradients near 0 after cancellation have no exact digits.
GRADIENT_TOLERANCE = 1e-4
DECAY = 0.9


def build_ours(images: tf.Tensor, is_training: bool, **options: Any) -> Tuple[tf.Tensor, tf.Tensor]:
    norm = BatchNorm(is_training, DECAY, update_in_place=False)
    return inception_v3(images, NUM_CLASSES, is_training, conv2d, norm, dropout_keep=1.0, **options)


def build_slim(images: tf.Tensor, is_training: bool, depth_multiplier: float = 1.0) -> Tuple[tf.Tensor, tf.Tensor]:
    from tensorflow.contrib import slim
    from tensorflow.contrib.slim.nets import inception

    with slim.arg_scope(inception.inception_v3_arg_scope(batch_norm_decay=DECAY)):
        logits, end_points = inception.inception_v3(
            images, NUM_CLASSES, is_training=is_training, dropout_keep_prob=1.0, depth_multiplier=depth_multiplier
        )
    return logits, end_points['AuxLogits']


def shapes() -> Dict[str, List[int]]:
    return {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}


def images_of(size: int, batch: int) -> np.ndarray:
    return np.random.RandomState(size).uniform(-1, 1, [batch, size, size, 3]).astype(np.float32)


def test_inception_v3__has_the_published_number_of_variables_and_parameters() -> None:
    build_ours(tf.zeros([1, 299, 299, 3]), True)
    trainable = tf.compat.v1.trainable_variables()
    assert len(trainable) == 196
    assert sum(int(np.prod(v.shape)) for v in trainable) == 27145970


@pytest.mark.parametrize('depth_multiplier', [1.0, 0.25])
def test_inception_v3__has_the_variable_names_and_shapes_of_slim(depth_multiplier: float) -> None:
    build_ours(tf.zeros([1, 299, 299, 3]), True, depth_multiplier=depth_multiplier)
    ours = shapes()
    with tf.Graph().as_default():
        build_slim(tf.zeros([1, 299, 299, 3]), True, depth_multiplier)
        assert ours == shapes()


def run_training_step(build: Any, images: np.ndarray, **options: Any) -> Dict[str, Any]:
    """Returns logits, gradients and updated statistics of a network with the weights of `set_weights`."""
    logits, auxiliary_logits = build(tf.constant(images), True, **options)
    trainable = tf.compat.v1.trainable_variables()
    # A loss with a gradient for every logit; its weights do not depend on the network.
    weights = np.random.RandomState(1).normal(size=[2, len(images), NUM_CLASSES]).astype(np.float32)
    loss = tf.reduce_sum(weights[0] * logits) + tf.reduce_sum(weights[1] * auxiliary_logits)
    gradients = tf.gradients(loss, trainable)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    moving = [v for v in tf.compat.v1.global_variables() if 'moving_' in v.op.name]
    with tf.compat.v1.Session() as session:
        set_weights(session)
        values = session.run({'logits': logits, 'auxiliary': auxiliary_logits, 'gradients': gradients})
        session.run(updates)
        values['moving'] = dict(zip([v.op.name for v in moving], session.run(moving)))
    values['gradients'] = dict(zip([v.op.name for v in trainable], values['gradients']))
    return values


def set_weights(session: tf.compat.v1.Session) -> None:
    """Sets every variable to a random value seeded by its name; kernels have the spread of He et al."""
    variables = tf.compat.v1.global_variables()
    values = {}
    for variable in variables:
        random = np.random.RandomState(sum(variable.op.name.encode()) % 2**32)
        shape = variable.shape.as_list()
        if variable.op.name.endswith('weights'):
            value = random.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape)
        elif variable.op.name.endswith('moving_variance'):
            value = random.uniform(0.5, 1.5, shape)
        else:
            value = random.normal(0, 0.1, shape)
        values[variable.initializer.inputs[1]] = value.astype(np.float32)
    session.run([variable.initializer for variable in variables], values)


@pytest.mark.parametrize(
    ('size', 'depth_multiplier'),
    [(139, 0.25), (299, 1.0)],
)
def test_inception_v3__training_agrees_with_slim(size: int, depth_multiplier: float) -> None:
    images = images_of(size, batch=4)
    ours = run_training_step(build_ours, images, depth_multiplier=depth_multiplier)
    with tf.Graph().as_default():
        slims = run_training_step(build_slim, images, depth_multiplier=depth_multiplier)
    np.testing.assert_allclose(ours['logits'], slims['logits'], atol=1e-5)
    np.testing.assert_allclose(ours['auxiliary'], slims['auxiliary'], atol=1e-5)
    assert np.abs(ours['logits']).max() > 0.1
    assert ours['gradients'].keys() == slims['gradients'].keys()
    for name, gradient in slims['gradients'].items():
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(ours['gradients'][name], gradient, atol=GRADIENT_TOLERANCE * scale, err_msg=name)
    for name, value in slims['moving'].items():
        np.testing.assert_allclose(ours['moving'][name], value, atol=1e-5, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(('size', 'depth_multiplier'), [(139, 0.25), (299, 1.0)])
def test_checkpoints__are_interchangeable_with_slim(size: int, depth_multiplier: float, tmp_path: Any) -> None:
    images = images_of(size, batch=2)

    def save_or_restore(build: Any, restore: str, save: str) -> Tuple[np.ndarray, np.ndarray]:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            outputs = build(tf.constant(images), False, depth_multiplier=depth_multiplier)
            saver = tf.compat.v1.train.Saver()
            if restore:
                saver.restore(session, restore)
            else:
                set_weights(session)
            if save:
                saver.save(session, save)
            return session.run(outputs)

    slims = save_or_restore(build_slim, '', str(tmp_path / 'slim'))
    ours = save_or_restore(build_ours, str(tmp_path / 'slim'), str(tmp_path / 'ours'))
    again = save_or_restore(build_slim, str(tmp_path / 'ours'), '')
    for slim_output, our_output, again_output in zip(slims, ours, again):
        np.testing.assert_allclose(our_output, slim_output, atol=1e-5)
        np.testing.assert_array_equal(again_output, slim_output)
        assert np.ptp(slim_output) > 0.1


@pytest.mark.parametrize(
    ('size', 'auxiliary'), [((75, 75), False), ((75, 200), False), ((107, 107), True), ((331, 107), True)]
)
def test_inception_v3__accepts_75_pixels_and_more(size: Tuple[int, int], auxiliary: bool) -> None:
    images = tf.zeros([2, *size, 3])
    logits, auxiliary_logits = build_ours(images, True, depth_multiplier=0.01, auxiliary_head=auxiliary)
    assert logits.shape.as_list() == [2, NUM_CLASSES]
    assert (auxiliary_logits is not None) == auxiliary
    if auxiliary:
        assert auxiliary_logits.shape.as_list() == [2, NUM_CLASSES]


def test_auxiliary_head__needs_107_pixels() -> None:
    with pytest.raises(ValueError, match='Negative dimension'):
        build_ours(tf.zeros([2, 106, 106, 3]), True, depth_multiplier=0.01)


def test_depth_multiplier__leaves_at_least_16_channels() -> None:
    build_ours(tf.zeros([2, 139, 139, 3]), True, depth_multiplier=0.01)
    kernels = [shape for name, shape in shapes().items() if name.endswith('weights')]
    assert {shape[-1] for shape in kernels} == {16, NUM_CLASSES}


def test_dropout__keeps_four_fifths_and_scales_them() -> None:
    from inception_v3.networks.layers import dropout

    ones = tf.ones([100, 100])
    with tf.compat.v1.Session() as session:
        dropped, kept = session.run([dropout(ones, 0.8, True), dropout(ones, 0.8, False)])
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1.25)}
    # With 10,000 draws, the share has a standard deviation of 0.004.
    assert np.mean(dropped > 0) == pytest.approx(0.8, abs=0.02)
    assert (kept == 1).all()


def test_initial_weights__follow_he_et_al_and_are_smaller_in_the_auxiliary_head() -> None:
    build_ours(tf.zeros([1, 299, 299, 3]), True)
    expected = {
        'InceptionV3/Mixed_7c/Branch_2/Conv2d_0b_3x3/weights': np.sqrt(2 / (9 * 448)),
        'InceptionV3/Logits/Conv2d_1c_1x1/weights': np.sqrt(2 / 2048),
        'InceptionV3/AuxLogits/Conv2d_1b_1x1/weights': np.sqrt(2 / 768),
        # As in TF-Slim: normal distributions with standard deviations of 0.01 and 0.001, truncated at two standard
        # deviations. Truncation multiplies the standard deviation by 0.8796.
        'InceptionV3/AuxLogits/Conv2d_2a_5x5/weights': 0.8796 * 0.01,
        'InceptionV3/AuxLogits/Conv2d_2b_1x1/weights': 0.8796 * 0.001,
    }
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    with tf.compat.v1.Session() as session:
        wanted = [variables[name] for name in expected]
        session.run([v.initializer for v in wanted])
        for name, value in zip(expected, session.run(wanted)):
            assert value.std() == pytest.approx(expected[name], rel=0.02), name
