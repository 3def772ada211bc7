"""Tests of Inception v3 against TF-Slim, an independent implementation in TensorFlow 1.15.

`tests/test_training_step.py` compares its gradients in float64.
"""

from typing import Any, Dict, List, Tuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks.inception_v3 import inception_v3
from inception_v3.networks.layers import conv2d
from tests.support.graphs import plain_session
from tests.support.slim import build_slim, load, values_by_name

NUM_CLASSES = 11
DECAY = 0.9
# The least height with an auxiliary head; the width leaves a map of two positions before the auxiliary logits. At this
# multiplier layers have 16, 19, 25, 32, 38 and 44 channels.
SIZE = (107, 163)
NARROW = 0.1


def build_ours(images: tf.Tensor, is_training: bool) -> Tuple[tf.Tensor, tf.Tensor]:
    norm = BatchNorm(is_training, DECAY, update_in_place=False)
    return inception_v3(images, NUM_CLASSES, is_training, conv2d, norm, dropout_keep=1.0, depth_multiplier=NARROW)


def build_theirs(images: tf.Tensor, is_training: bool) -> Tuple[tf.Tensor, tf.Tensor]:
    return build_slim(images, NUM_CLASSES, is_training, DECAY, NARROW)


def images_of(size: Tuple[int, int], batch: int) -> np.ndarray:
    return np.random.RandomState(size[0]).uniform(-1, 1, [batch, *size, 3])


def run_training_step(build: Any) -> Dict[str, Any]:
    """Returns logits, gradients and updated statistics of a network with the weights of `values_by_name`."""
    images = images_of(SIZE, batch=4)
    with tf.Graph().as_default():
        logits, auxiliary_logits = build(tf.constant(images, tf.float32), True)
        trainable = tf.trainable_variables()
        # A loss with a gradient for every logit; its weights do not depend on the network.
        weights = np.random.RandomState(1).normal(size=[2, len(images), NUM_CLASSES])
        loss = tf.reduce_sum(weights[0] * logits) + tf.reduce_sum(weights[1] * auxiliary_logits)
        gradients = {v.op.name: gradient for v, gradient in zip(trainable, tf.gradients(loss, trainable))}
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        moving = {v.op.name: v for v in tf.global_variables() if 'moving_' in v.op.name}
        with plain_session() as session:
            load(values_by_name(), session)
            values = session.run({'logits': logits, 'auxiliary': auxiliary_logits, 'gradients': gradients})
            values['begin'] = session.run(moving)
            session.run(updates)
            values['moving'] = session.run(moving)
    return values


def relative_distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_inception_v3__training_agrees_with_slim() -> None:
    ours, theirs = (run_training_step(build) for build in (build_ours, build_theirs))
    # Through 48 layers, each with a relative rounding error of about 1e-6: that of a sum of a thousand products.
    for name in ('logits', 'auxiliary'):
        assert np.abs(theirs[name]).max() > 0.1
        np.testing.assert_allclose(ours[name], theirs[name], atol=5e-5 * np.abs(theirs[name]).max(), err_msg=name)
    assert ours['moving'].keys() == theirs['moving'].keys() and len(theirs['moving']) == 2 * 96
    for name, value in theirs['moving'].items():
        np.testing.assert_allclose(ours['moving'][name], value, atol=5e-5, rtol=5e-5, err_msg=name)
        assert np.abs(value - theirs['begin'][name]).max() > 1e-2, name
    assert ours['gradients'].keys() == theirs['gradients'].keys()
    # A gradient is discontinuous where the argument of a ReLU is 0: in float32, one that switches among the thousand
    # values of a channel moves the gradients before it by about 1e-3. A branch without a gradient moves them by more.
    distances = [relative_distance(ours['gradients'][name], value) for name, value in theirs['gradients'].items()]
    assert np.percentile(distances, 80) < 1e-2 and max(distances) < 0.5


def test_checkpoints__are_interchangeable_with_slim(tmp_path: Any) -> None:
    paths = [str(tmp_path / name) for name in ('theirs', 'ours')]
    outputs: List[Any] = []
    for build, path in zip((build_theirs, build_ours), paths):
        with tf.Graph().as_default(), plain_session() as session:
            tensors = build(tf.constant(images_of(SIZE, batch=2), tf.float32), False)
            saver = tf.train.Saver()
            if outputs:
                saver.restore(session, paths[0])
            else:
                load(values_by_name(), session)
            saver.save(session, path)
            outputs.append(session.run(tensors))
    for theirs, ours in zip(*outputs):
        np.testing.assert_allclose(ours, theirs, atol=5e-5 * np.abs(theirs).max())
        assert np.ptp(theirs) > 0.1
    # TF-Slim can restore a checkpoint that has the same variables.
    theirs, ours = (tf.train.load_checkpoint(path) for path in paths)
    assert ours.get_variable_to_shape_map() == theirs.get_variable_to_shape_map()
    for name in theirs.get_variable_to_shape_map():
        np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name), err_msg=name)
