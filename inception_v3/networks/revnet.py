"""RevNets, residual networks whose activations need not be kept.

Gomez, Ren, Urtasun & Grosse, "The Reversible Residual Network: Backpropagation Without Storing Activations", table 2
and appendix A.
"""

import functools
from typing import NamedTuple, Optional, Tuple

import tensorflow as tf

from inception_v3.networks import layers, reversible

# A bottleneck's last convolution has so many times the channels of its others.
EXPANSION = 4


class Architecture(NamedTuple):
    """A row of the table.

    Attributes:
      units: of each stage. All but the first stage begin with half the height and width.
      depths: the channels of each stage's convolutions, of both halves together.
      is_bottleneck: of ImageNet: each residual function is a bottleneck of three convolutions, the last with four times
        the channels, behind a stem that takes height and width to a quarter; and where channels become more, a
        convolution makes them. Of CIFAR: residual functions are two convolutions of 3 x 3, the stem is one, and what
        channels are more are 0.
    """

    units: Tuple[int, ...]
    depths: Tuple[int, ...]
    is_bottleneck: bool


# 0.46 and 1.73 million parameters, as ResNet-32 and ResNet-110 have.
REVNET_38 = Architecture((3, 3, 3), (32, 64, 112), is_bottleneck=False)
REVNET_110 = Architecture((9, 9, 9), (32, 64, 128), is_bottleneck=False)
# 45.2 million, as ResNet-101 has; and the same with as many layers fewer as ResNet-50 has, which is not in the table.
REVNET_104 = Architecture((2, 2, 11, 2), (128, 256, 512, 832), is_bottleneck=True)
REVNET_56 = REVNET_104._replace(units=(2, 2, 3, 2))


class _Builder:
    """Builds the network's parts with the convolution and the normalization that it is given."""

    def __init__(self, is_bottleneck: bool, dtype: tf.DType, conv: layers.Conv, norm: layers.Norm):
        self._is_bottleneck = is_bottleneck
        self._dtype = dtype
        self._conv = conv
        self._norm = norm

    def activated(self, net: tf.Tensor, again: bool = False) -> tf.Tensor:
        """Batch normalization and ReLU; moving statistics are updated unless this runs again."""
        return tf.nn.relu(self._norm(net, tf.ones_initializer(), moves_statistics=not again))

    def conv(self, net: tf.Tensor, depth: int, window: int, stride: int = 1) -> tf.Tensor:
        """A convolution around each position."""
        return self._conv(layers.padded(net, window), depth, (window, window), stride, 'VALID')

    def stem(self, images: tf.Tensor, depth: int) -> tf.Tensor:
        """What comes before the first stage."""
        if not self._is_bottleneck:
            return self.conv(images, depth, 3)
        # Zeros are no more than what a ReLU leaves.
        net = layers.padded(self.activated(self.conv(images, depth, 7, stride=2)), 3)
        return layers.max_pool(net, 3, stride=2, padding='VALID')

    def width(self, depth: int) -> int:
        """The channels of each half between units whose convolutions have `depth`."""
        return depth * EXPANSION if self._is_bottleneck else depth

    def residual(self, scope: str, depth: int, stride: int, net: tf.Tensor, again: bool) -> tf.Tensor:
        """Normalizations, each with its convolution behind it (figure 2 of the paper; He et al. 2016, figure 4e)."""
        windows = ((1, depth), (3, depth), (1, self.width(depth))) if self._is_bottleneck else ((3, depth),) * 2
        # The stride is the first 3 x 3 convolution's.
        strided = [window for window, _ in windows].index(3)
        outputs = net
        for number, (window, channels) in enumerate(windows):
            with tf.compat.v1.variable_scope(f'{scope}/conv_{number + 1}'):
                outputs = tf.cast(self.activated(outputs, again), self._dtype)
                outputs = self.conv(outputs, channels, window, stride if number == strided else 1)
        return tf.cast(outputs, net.dtype)

    def block(self, scope: str, depth: int, stride: int = 1) -> reversible.Block:
        """The residual functions of a unit, each of one half of the channels."""
        f = functools.partial(self.residual, f'{scope}/F', depth, stride)
        # G comes after the stride.
        return reversible.Block(f, functools.partial(self.residual, f'{scope}/G', depth, 1))

    def changing(
        self, scope: str, x1: tf.Tensor, x2: tf.Tensor, depth: int, stride: int
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        """A unit that changes height and width or channels, and is therefore not reversible."""
        block = self.block(scope, depth, stride)
        y1 = self.shortcut(f'{scope}/shortcut_1', x1, depth, stride) + block.f(x2, False)
        return y1, self.shortcut(f'{scope}/shortcut_2', x2, depth, stride) + block.g(y1, False)

    def shortcut(self, scope: str, net: tf.Tensor, depth: int, stride: int) -> tf.Tensor:
        """What passes by a residual function that changes height and width or channels."""
        if self._is_bottleneck:
            with tf.compat.v1.variable_scope(scope):
                return tf.cast(self.conv(tf.cast(net, self._dtype), self.width(depth), 1, stride), net.dtype)
        pooled = layers.average_pool(net, (stride, stride), stride, 'SAME')
        return tf.pad(pooled, [[0, 0], [0, 0], [0, 0], [0, depth - int(net.shape[3])]])


def revnet(
    architecture: Architecture,
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    depth_multiplier: float = 1.0,
    rebuild_activations: bool = True,
) -> Tuple[tf.Tensor, Optional[tf.Tensor]]:
    """Builds the network.

    Args:
      architecture: which one.
      images: [batch, height, width, 3], float32, float64 or bfloat16. What passes from unit to unit is never less than
        float32.
      num_classes: classes, background included.
      is_training: whether there will be a backward pass.
      conv: the convolution, like `layers.conv2d`.
      norm: the normalization, like `batch_norm.BatchNorm`.
      depth_multiplier: factor on the channels of every layer, of which each half keeps at least 16.
      rebuild_activations: see `reversible.chain`. A stage's first unit keeps its activations either way, if it is not
        reversible: if it changes height and width, or channels.

    Returns:
      The logits, [batch, num_classes], of the images' dtype; and None, since there is no auxiliary head.
    """
    builder = _Builder(architecture.is_bottleneck, images.dtype, conv, norm)
    halves = [layers.scaled_depth(depth // 2, depth_multiplier) for depth in architecture.depths]
    with tf.compat.v1.variable_scope('RevNet'):
        with tf.compat.v1.variable_scope('stem'):
            net = builder.stem(images, 2 * halves[0])
        x1, x2 = tf.split(net if net.dtype == tf.float64 else tf.cast(net, tf.float32), 2, axis=3)
        for number, (units, depth) in enumerate(zip(architecture.units, halves), 1):
            with tf.compat.v1.variable_scope(f'stage_{number}'):
                blocks = [f'unit_{unit + 1}' for unit in range(units)]
                stride = 1 if number == 1 else 2
                if stride > 1 or builder.width(depth) != x1.shape[3]:
                    x1, x2 = builder.changing(blocks.pop(0), x1, x2, depth, stride)
                chained = [builder.block(name, depth) for name in blocks]
                x1, x2 = reversible.chain(chained, x1, x2, rebuild_activations and is_training)
        with tf.compat.v1.variable_scope('last'):
            net = builder.activated(tf.concat([x1, x2], axis=3))
        net = tf.reduce_mean(net, [1, 2], keepdims=True)
        with tf.compat.v1.variable_scope('logits'):
            logits = layers.add_bias(conv(tf.cast(net, images.dtype), num_classes, (1, 1)))
    return tf.squeeze(logits, [1, 2]), None
