"""A network of one convolution with an auxiliary head, for tests of the training step around a network."""

from typing import Any, Tuple

from compat import tf
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS

CHANNELS = 5


def tiny_network(
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    dropout: layers.Dropout = layers.dropout,
    auxiliary_head: bool = True,
    layout: layers.Layout = layers.NHWC,
    **unused: Any,
) -> Tuple[tf.Tensor, Any]:
    """A smooth network: without a ReLU or a maximum, gradients are as exact as the arithmetic.

    It has no tanh: 2.15 and 2.21 fuse tanh with the batch normalization of an evaluation, but have no kernel for that.
    """
    with tf.variable_scope('Layer'):
        net = tf.nn.softplus(norm(conv(images, CHANNELS, (1, 1))))
    pooled = tf.cast(tf.reduce_mean(tf.cast(net, tf.float32), layout.pixels, keepdims=True), images.dtype)

    def logits(scope: str, net: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(scope):
            return tf.squeeze(layers.add_bias(conv(net, num_classes, (1, 1)), layout), layout.pixels)

    auxiliary = logits('AuxLogits', pooled) if auxiliary_head else None
    return logits('Logits', dropout(pooled, 0.8, is_training)), auxiliary


# A replacement for Inception v3 in the registry, with the same limits.
TINY = NETWORKS['inception_v3']._replace(build=tiny_network)
