"""RevNets: residual networks whose activations need not be stored.

Gomez, Ren, Urtasun & Grosse, "The Reversible Residual Network: Backpropagation Without Storing Activations", table 2
and appendix A.
"""

import functools
from typing import Callable, NamedTuple, Optional, Tuple

from compat import tf
from inception_v3.networks import layers, reversible

# The last convolution of a bottleneck has this many times the channels of the others.
EXPANSION = 4


class Architecture(NamedTuple):
    """A row of table 2.

    Attributes:
      units: the number of units per stage. Every stage but the first halves height and width.
      depths: the channels of the convolutions per stage, of both halves together.
      is_bottleneck: True for ImageNet: a residual function is a bottleneck of three convolutions, the last with four
        times the channels; the stem divides height and width by 4; shortcuts add channels with a convolution. False for
        CIFAR: a residual function is two 3 x 3 convolutions, the stem is one, and shortcuts add channels of zeros.
    """

    units: Tuple[int, ...]
    depths: Tuple[int, ...]
    is_bottleneck: bool


# 0.46 and 1.73 million parameters, the sizes of ResNet-32 and ResNet-110.
REVNET_38 = Architecture((3, 3, 3), (32, 64, 112), is_bottleneck=False)
REVNET_110 = Architecture((9, 9, 9), (32, 64, 128), is_bottleneck=False)
# 45.2 million parameters, the size of ResNet-101. REVNET_56, which is not in the table, has fewer layers, as ResNet-50
# has fewer than ResNet-101. Its 9 units of six convolutions, the stem and the last layer make 56 layers, as in the
# authors' program. The TensorFlow program's configuration of that name has 2 units in its third stage, or 50 layers.
REVNET_104 = Architecture((2, 2, 11, 2), (128, 256, 512, 832), is_bottleneck=True)
REVNET_56 = REVNET_104._replace(units=(2, 2, 3, 2))


class Builder:
    """Builds the parts of the network with a given convolution and normalization."""

    def __init__(
        self, is_bottleneck: bool, dtype: tf.DType, conv: layers.Conv, norm: layers.Norm, layout: layers.Layout
    ):
        self._is_bottleneck = is_bottleneck
        self._dtype = dtype
        self._conv = conv
        self._norm = norm
        self._layout = layout

    def activated(self, net: tf.Tensor, again: bool = False) -> tf.Tensor:
        """Batch normalization and ReLU; a recomputation (`again`) does not update the moving statistics."""
        return tf.nn.relu(self._norm(net, tf.ones_initializer(), moves_statistics=not again))

    def conv(self, net: tf.Tensor, depth: int, window: int, stride: int = 1) -> tf.Tensor:
        """A convolution with `window` x `window` windows centred on the pixels."""
        return self._conv(layers.padded(net, window, self._layout), depth, (window, window), stride, 'VALID')

    def stem(self, images: tf.Tensor, depth: int) -> tf.Tensor:
        """The layers before the first stage."""
        if not self._is_bottleneck:
            return self.conv(images, depth, 3)
        # Padding with 0 is neutral for the maximum, because a ReLU comes before.
        net = layers.padded(self.activated(self.conv(images, depth, 7, stride=2)), 3, self._layout)
        return layers.max_pool(net, 3, stride=2, padding='VALID', layout=self._layout)

    def width(self, depth: int) -> int:
        """The channels of each half between units with convolutions of `depth` channels."""
        return depth * EXPANSION if self._is_bottleneck else depth

    def residual(self, scope: str, depth: int, stride: int, net: tf.Tensor, again: bool) -> tf.Tensor:
        """A residual function: normalizations before convolutions (figure 2; He et al. 2016, figure 4e)."""
        windows = ((1, depth), (3, depth), (1, self.width(depth))) if self._is_bottleneck else ((3, depth),) * 2
        # The first 3 x 3 convolution has the stride.
        strided = [window for window, _ in windows].index(3)
        outputs = net
        for number, (window, channels) in enumerate(windows):
            with tf.variable_scope(f'{scope}/conv_{number + 1}'):
                outputs = tf.cast(self.activated(outputs, again), self._dtype)
                outputs = self.conv(outputs, channels, window, stride if number == strided else 1)
        return tf.cast(outputs, net.dtype)

    def block(self, scope: str, depth: int, stride: int = 1) -> reversible.Block:
        """The residual functions F and G of a unit, each on one half of the channels."""
        f = functools.partial(self.residual, f'{scope}/F', depth, stride)
        # G runs after F, so its input is already strided.
        return reversible.Block(f, functools.partial(self.residual, f'{scope}/G', depth, 1))

    def changing(
        self, scope: str, x1: tf.Tensor, x2: tf.Tensor, depth: int, stride: int
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        """A unit that changes height and width or channels, so it is not reversible."""
        block = self.block(scope, depth, stride)
        y1 = self.shortcut(f'{scope}/shortcut_1', x1, depth, stride) + block.f(x2, False)
        return y1, self.shortcut(f'{scope}/shortcut_2', x2, depth, stride) + block.g(y1, False)

    def shortcut(self, scope: str, net: tf.Tensor, depth: int, stride: int) -> tf.Tensor:
        """The shortcut around a residual function that changes height and width or channels."""
        if self._is_bottleneck:
            with tf.variable_scope(scope):
                return tf.cast(self.conv(tf.cast(net, self._dtype), self.width(depth), 1, stride), net.dtype)
        pooled = layers.average_pool(net, (stride, stride), stride, 'SAME', self._layout)
        missing = depth - int(net.shape[self._layout.channels])
        return tf.pad(pooled, self._layout.ordered([0, 0], [0, 0], [0, 0], [0, missing]))


def revnet(
    architecture: Architecture,
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    depth_multiplier: float = 1.0,
    rebuild_activations: bool = True,
    layout: layers.Layout = layers.NHWC,
    chain: Callable[..., Tuple[tf.Tensor, tf.Tensor]] = reversible.chain,
) -> Tuple[tf.Tensor, Optional[tf.Tensor]]:
    """Builds the network of a row of the table, such as `REVNET_38`, as `registry.Network.build` describes it.

    Images may also be float64. Values between units are at least float32. For `rebuild_activations`, see
    `reversible.chain`. A stage's first unit always stores its activations if it changes height and width or channels,
    because it is not reversible then.
    `chain` applies the reversible units of a stage, like `reversible.chain`.
    """
    builder = Builder(architecture.is_bottleneck, images.dtype, conv, norm, layout)
    halves = [layers.scaled_depth(depth // 2, depth_multiplier) for depth in architecture.depths]
    with tf.variable_scope('RevNet'):
        with tf.variable_scope('stem'):
            net = builder.stem(images, 2 * halves[0])
        x1, x2 = tf.split(net if net.dtype == tf.float64 else tf.cast(net, tf.float32), 2, axis=layout.channels)
        for number, (units, depth) in enumerate(zip(architecture.units, halves), 1):
            with tf.variable_scope(f'stage_{number}'):
                blocks = [f'unit_{unit + 1}' for unit in range(units)]
                stride = 1 if number == 1 else 2
                if stride > 1 or builder.width(depth) != x1.shape[layout.channels]:
                    x1, x2 = builder.changing(blocks.pop(0), x1, x2, depth, stride)
                chained = [builder.block(name, depth) for name in blocks]
                x1, x2 = chain(chained, x1, x2, rebuild_activations and is_training)
        with tf.variable_scope('last'):
            net = builder.activated(tf.concat([x1, x2], axis=layout.channels))
        net = tf.reduce_mean(net, layout.pixels, keepdims=True)
        with tf.variable_scope('logits'):
            logits = layers.add_bias(conv(tf.cast(net, images.dtype), num_classes, (1, 1)), layout)
    return tf.squeeze(logits, layout.pixels), None


revnet38, revnet56, revnet104, revnet110 = (
    functools.partial(revnet, each) for each in (REVNET_38, REVNET_56, REVNET_104, REVNET_110)
)
