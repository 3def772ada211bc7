"""Tests of Inception v3: its layers, dropout, initial weights, and TF-Slim's network with the same checkpoints.

`tests/test_training_step.py` compares training steps with TF-Slim's.
"""

from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import layers
from inception_v3.networks.inception_v3 import inception_v3
from tests.support.graphs import plain_session
from tests.support.slim import build_slim, load, values_by_name

NUM_CLASSES = 1001


def build(images: tf.Tensor, **options: Any) -> Tuple[tf.Tensor, tf.Tensor]:
    """The network in training, without normalization: with it, a graph takes three times as long to build."""
    return inception_v3(images, NUM_CLASSES, True, layers.conv2d, lambda net: net, **options)


@pytest.fixture(scope='module')
def full() -> Tuple[tf.Graph, List[Any]]:
    """The graph of the network of the paper in training, and the arguments of its dropout."""
    dropped: List[Any] = []

    def dropout(inputs: tf.Tensor, keep: float, is_training: bool) -> tf.Tensor:
        dropped.append((inputs.shape.as_list(), keep, is_training))
        return inputs

    with tf.Graph().as_default() as graph:
        build(tf.zeros([1, 299, 299, 3]), dropout=dropout)
    return graph, dropped


def test_inception_v3__layers_have_the_sizes_of_the_paper(full: Any) -> None:
    # Table 1: the output of each row, up to the pooling. Figure 10 gives the first reduction's 17 x 17.
    expected = {
        'Conv2d_1a_3x3/Relu': [149, 149, 32],
        'Conv2d_2a_3x3/Relu': [147, 147, 32],
        'Conv2d_2b_3x3/Relu': [147, 147, 64],
        'Conv2d_3b_1x1/Relu': [73, 73, 80],
        'Conv2d_4a_3x3/Relu': [71, 71, 192],
        'Mixed_5b/concat': [35, 35, 256],
        'Mixed_5c/concat': [35, 35, 288],
        'Mixed_5d/concat': [35, 35, 288],
        'Mixed_6a/concat': [17, 17, 768],
        'Mixed_6e/concat': [17, 17, 768],
        'AuxLogits/Conv2d_1b_1x1/Relu': [5, 5, 128],
        'AuxLogits/Conv2d_2a_5x5/Relu': [1, 1, 768],
        'Mixed_7a/concat': [8, 8, 1280],
        'Mixed_7b/concat': [8, 8, 2048],
        'Mixed_7c/concat': [8, 8, 2048],
    }
    found = {name: full[0].get_tensor_by_name(f'InceptionV3/{name}:0').shape.as_list()[1:] for name in expected}
    assert found == expected


def test_dropout__keeps_four_fifths_before_the_logits_alone(full: Any) -> None:
    # Szegedy et al. give no number; TF-Slim's is 0.8. The auxiliary head has no dropout.
    assert full[1] == [([1, 1, 1, 2048], 0.8, True)]


def test_dropout__scales_what_it_keeps() -> None:
    tf.set_random_seed(1)
    ones = tf.ones([100, 100])
    with tf.Session() as session:
        dropped, kept = session.run([layers.dropout(ones, 0.8, True), layers.dropout(ones, 0.8, False)])
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1.25)}
    # With 10,000 draws, the share has a standard deviation of 0.004.
    assert np.mean(dropped > 0) == pytest.approx(0.8, abs=0.016)
    assert (kept == 1).all()


def test_initial_weights__follow_he_et_al_but_in_the_auxiliary_head(full: Any) -> None:
    expected = {
        'InceptionV3/Mixed_7c/Branch_2/Conv2d_0b_3x3/weights': np.sqrt(2 / (9 * 448)),
        'InceptionV3/Logits/Conv2d_1c_1x1/weights': np.sqrt(2 / 2048),
        'InceptionV3/AuxLogits/Conv2d_1b_1x1/weights': np.sqrt(2 / 768),
        # As in TF-Slim: normal distributions with standard deviations of 0.01 and 0.001, truncated at two standard
        # deviations. Truncation multiplies the standard deviation by 0.8796.
        'InceptionV3/AuxLogits/Conv2d_2a_5x5/weights': 0.8796 * 0.01,
        'InceptionV3/AuxLogits/Conv2d_2b_1x1/weights': 0.8796 * 0.001,
    }
    with full[0].as_default(), plain_session() as session:
        variables = {v.op.name: v for v in tf.global_variables()}
        wanted = [variables[name] for name in expected]
        session.run([v.initializer for v in wanted])
        for name, value in zip(expected, session.run(wanted)):
            # The smallest of these has 98,304 values: the standard error of the standard deviation is below 0.3%.
            assert value.std() == pytest.approx(expected[name], rel=0.02), name
            assert abs(value.mean()) < 0.02 * expected[name], name


@pytest.mark.parametrize(('size', 'auxiliary'), [((75, 200), False), ((331, 107), True)])
def test_inception_v3__accepts_75_pixels_and_more(size: Tuple[int, int], auxiliary: bool, few_blocks: None) -> None:
    images = tf.zeros([2, *size, 3])
    outputs = build(images, depth_multiplier=0.01, auxiliary_head=auxiliary)
    assert [each.shape.as_list() for each in outputs if each is not None] == [[2, NUM_CLASSES]] * (1 + auxiliary)
    # At least 16 channels remain in each layer.
    shapes = {v.op.name: v.shape.as_list() for v in tf.global_variables()}
    assert {shape[-1] for name, shape in shapes.items() if name.endswith('weights')} == {16, NUM_CLASSES}


def test_auxiliary_head__needs_107_pixels(few_blocks: None) -> None:
    with pytest.raises(ValueError, match='Negative dimension'):
        build(tf.zeros([2, 331, 106, 3]), depth_multiplier=0.01)


def test_scaled_depth__multiplies_and_leaves_at_least_16() -> None:
    wanted = {(64, 1.0): 64, (448, 0.25): 112, (48, 0.35): 16, (2048, 0.001): 16, (35, 0.5): 17, (32, 2.0): 64}
    assert {drawn: layers.scaled_depth(*drawn) for drawn in wanted} == wanted


def test_checkpoints__are_interchangeable_with_slim() -> None:
    # The smallest height with an auxiliary head; the width leaves a map of two positions before the auxiliary logits.
    # With this multiplier, layers have 16, 19, 25, 32, 38 and 44 channels.
    images, narrow = np.random.RandomState(0).uniform(-1, 1, [2, 107, 163, 3]).astype(np.float32), 0.1

    def slim() -> Any:
        return build_slim(tf.constant(images), NUM_CLASSES, False, 0.9, narrow)

    def own() -> Any:
        norm = BatchNorm(False, 0.9)
        return inception_v3(tf.constant(images), NUM_CLASSES, False, layers.conv2d, norm, depth_multiplier=narrow)

    stored, outputs = [], []
    for network in (slim, own):
        with tf.Graph().as_default(), plain_session() as session:
            tensors = network()
            # Values depend only on the names and shapes under which a checkpoint stores variables.
            values = values_by_name()
            load(values, session)
            stored.append({name: value.shape for name, value in values.items()})
            outputs.append(session.run(tensors))
    theirs, ours = stored
    assert ours == theirs
    for of_theirs, of_ours in zip(*outputs):
        np.testing.assert_allclose(of_ours, of_theirs, atol=5e-5 * np.abs(of_theirs).max())
        assert np.ptp(of_theirs) > 0.1
