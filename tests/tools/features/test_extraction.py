"""Tests of layers by name, of the features of a run, and of the preparation of images for the graph of 2015."""

import numpy as np
import pytest

from compat import tf
from compat.errors import CommandError
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from tests.support.graphs import plain_session
from tools.features import extraction
from tools.features.extraction import Endpoints


def test_prepared__resizes_as_tensorflow_1() -> None:
    """The expected pixels are from `interpolate_bilinear_2d_like_tensorflow1x` of torch-fidelity 0.4.0.

    It was called as in its network, on the same pixels, with PyTorch 2.14.1.
    """
    random = np.random.RandomState(5)
    small, large = (random.randint(0, 256, shape).astype(np.uint8) for shape in ([5, 7, 3], [400, 512, 3]))
    with tf.Graph().as_default(), plain_session() as session:
        found = [session.run(extraction.prepared(tf.constant(each))) * 128 + 128 for each in (small, large)]
    assert found[0].shape == found[1].shape == (299, 299, 3)
    np.testing.assert_allclose(found[0][0, 0], [99, 206, 239], atol=1e-3)
    np.testing.assert_allclose(found[0][17, 123], [211.181442, 179.210114, 152.586502], atol=1e-3)
    np.testing.assert_allclose(found[0][150, 150], [106.42572, 154.702423, 97.2409973], atol=1e-3)
    np.testing.assert_allclose(found[0][250, 200], [169.842819, 155.177261, 151.167221], atol=1e-3)
    np.testing.assert_allclose(found[0][298, 298], [118, 235, 232], atol=1e-3)
    assert found[0].mean(dtype=np.float64) == pytest.approx(127.57696305641716, abs=1e-4)
    np.testing.assert_allclose(found[1][1, 1], [118.216148, 88.2685242, 139.374023], atol=1e-3)
    np.testing.assert_allclose(found[1][17, 123], [78.523819, 84.7601013, 169.168579], atol=1e-3)
    np.testing.assert_allclose(found[1][298, 298], [139.6306, 63.3667297, 177.883347], atol=1e-3)
    assert found[1].mean(dtype=np.float64) == pytest.approx(127.63827840047934, abs=1e-4)


@pytest.mark.parametrize(
    ('network', 'norm', 'size', 'names'),
    [
        # Without its normalization, the graph of 94 layers is built in a third of the time.
        (
            'inception_v3',
            lambda net: net,
            107,
            'pool Conv2d_1a_3x3 Conv2d_2a_3x3 Conv2d_2b_3x3 MaxPool2d Conv2d_3b_1x1 Conv2d_4a_3x3 MaxPool2d_1 Mixed_5b '
            'Mixed_5c Mixed_5d Mixed_6a Mixed_6b Mixed_6c Mixed_6d Mixed_6e Mixed_7a Mixed_7b Mixed_7c Logits',
        ),
        ('revnet38', BatchNorm(is_training=False, decay=0.9), 8, 'pool stem stage_1 stage_2 stage_3 last logits'),
    ],
)
def test_endpoints__are_the_layers_of_any_network(network: str, norm: layers.Norm, size: int, names: str) -> None:
    build = NETWORKS[network].build
    options = {'auxiliary_head': False} if 'auxiliary_head' in NETWORKS[network].options else {}
    with tf.Graph().as_default() as graph, plain_session() as session:
        images = tf.placeholder(tf.float32, [None, size, size, 3])
        logits, _ = build(images, 7, False, conv=layers.conv2d, norm=norm, depth_multiplier=0.01, **options)
        tf.nn.softmax(logits)
        endpoints = Endpoints(graph)
        assert endpoints.names() == names.split()
        last = endpoints.names()[-1]
        pool, scores = endpoints.features('pool'), endpoints.features(last)
        product = tf.global_variables()[-2]
        session.run(tf.global_variables_initializer())
        batch = np.random.RandomState(0).normal(size=[2, size, size, 3])
        found, expected, outputs, weights = session.run([pool, logits, scores, product], {images: batch})
        # The biases are 0.
        np.testing.assert_allclose(found @ weights[0, 0], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(outputs, expected)
        with pytest.raises(CommandError, match=r'^--layer=Mixed: the network has no such layer\. It has pool, .*'):
            endpoints.features('Mixed')


def test_endpoints__average_the_output_of_a_scope() -> None:
    with tf.Graph().as_default() as graph, plain_session() as session:
        images = tf.placeholder(tf.float32, [None, 4, 4, 3])
        with tf.variable_scope('Net'), tf.variable_scope('One'):
            left = layers.conv2d(images, 5, (1, 1))
            signs = tf.cast(left, tf.int32)
            with tf.variable_scope('Inside'):
                right = layers.conv2d(left, 2, (1, 1))
        with tf.variable_scope('Net/Logits'):
            layers.conv2d(tf.reduce_mean(tf.concat([left, right], axis=3), [1, 2], keepdims=True), 3, (1, 1))
        # Whole numbers and weights that others read are no features.
        tf.identity(signs)
        tf.add_n([tf.nn.l2_loss(each) for each in tf.trainable_variables()])
        endpoints = Endpoints(graph)
        # With and without the scope of the network.
        both, inside = endpoints.features('One'), endpoints.features('Net/One/Inside/')
        session.run(tf.global_variables_initializer())
        batch = np.random.RandomState(0).normal(size=[2, 4, 4, 3])
        maps, features, inner = session.run([[left, right], both, inside], {images: batch})
    means = [np.mean(each, axis=(1, 2)) for each in maps]
    np.testing.assert_allclose(features, np.concatenate(means, axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inner, means[1], rtol=1e-5, atol=1e-6)
