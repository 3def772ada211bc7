"""Tests of Inception v3 against TF-Slim, an independent implementation in TensorFlow 1.15.

`tests/test_training_step.py` compares training steps.
"""

from typing import Any, List, Tuple

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
