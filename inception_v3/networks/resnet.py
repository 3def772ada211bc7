"""ResNet-50, version 1.5.

He, Zhang, Ren & Sun, "Deep Residual Learning for Image Recognition", table 1 and figure 5, with the stride of a stage's
first block in its 3 x 3 convolution instead of its first 1 x 1, as in Goyal et al., "Accurate, Large Minibatch SGD",
section 5.1, so that no pixel is skipped.
"""

from typing import NamedTuple, Optional, Tuple

from compat import tf
from inception_v3.networks import layers

# The last convolution of a block has this many times the channels of the others.
EXPANSION = 4
BATCH_NORM_EPSILON = 1e-5

# Goyal et al., section 5.1.
_LOGITS_INITIALIZER = tf.random_normal_initializer(stddev=0.01)


class Stage(NamedTuple):
    """Blocks of the same size; the stride is the first block's."""

    blocks: int
    depth: int
    stride: int


# Input 224 x 224 x 3, 56 x 56 x 64 after the stem; each comment gives the output size.
STAGES = (
    Stage(3, 64, stride=1),  # 56 x 56 x 256
    Stage(4, 128, stride=2),  # 28 x 28 x 512
    Stage(6, 256, stride=2),  # 14 x 14 x 1024
    Stage(3, 512, stride=2),  # 7 x 7 x 2048
)


class _Builder:
    """Builds the rows of the table above with a given convolution and normalization."""

    def __init__(
        self,
        conv: layers.Conv,
        norm: layers.Norm,
        depth_multiplier: float,
        zero_init_last_scale: bool,
        layout: layers.Layout,
    ):
        self._conv = conv
        self._norm = norm
        self._layout = layout
        self._depth_multiplier = depth_multiplier
        self._last_scale = tf.zeros_initializer() if zero_init_last_scale else tf.ones_initializer()

    def conv(
        self, scope: str, net: tf.Tensor, depth: int, window: int, stride: int = 1, is_last: bool = False
    ) -> tf.Tensor:
        """A convolution and its normalization."""
        depth = layers.scaled_depth(depth, self._depth_multiplier)
        scale_initializer = self._last_scale if is_last else tf.ones_initializer()
        with tf.variable_scope(scope):
            net = self._conv(layers.padded(net, window, self._layout), depth, (window, window), stride, 'VALID')
            return self._norm(net, scale_initializer, BATCH_NORM_EPSILON)

    def block(self, net: tf.Tensor, depth: int, stride: int, is_first: bool) -> tf.Tensor:
        """Figure 5, right. The first block of a stage has a convolution in its shortcut, which changes the size."""
        shortcut = self.conv('shortcut', net, depth * EXPANSION, 1, stride) if is_first else net
        net = tf.nn.relu(self.conv('conv_1', net, depth, 1))
        net = tf.nn.relu(self.conv('conv_2', net, depth, 3, stride))
        net = self.conv('conv_3', net, depth * EXPANSION, 1, is_last=True)
        return tf.nn.relu(net + shortcut)


def resnet50(
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    depth_multiplier: float = 1.0,
    zero_init_last_scale: bool = False,
    layout: layers.Layout = layers.NHWC,
) -> Tuple[tf.Tensor, Optional[tf.Tensor]]:
    """Builds the network, as `registry.Network.build` describes it, for images of at least 32 x 32 pixels.

    With `zero_init_last_scale`, the scale after each block's last convolution starts at 0 instead of 1, so that blocks
    start as the identity (Goyal et al., section 5.1).
    """
    builder = _Builder(conv, norm, depth_multiplier, zero_init_last_scale, layout)
    with tf.variable_scope('ResNet50'):
        net = tf.nn.relu(builder.conv('stem', images, 64, 7, stride=2))
        # Padding with 0 is neutral for the maximum, because a ReLU comes before.
        net = layers.max_pool(layers.padded(net, 3, layout), 3, stride=2, padding='VALID', layout=layout)
        for number, stage in enumerate(STAGES, 1):
            for block in range(stage.blocks):
                with tf.variable_scope(f'stage_{number}/block_{block + 1}'):
                    net = builder.block(net, stage.depth, stage.stride if block == 0 else 1, is_first=block == 0)
        net = tf.reduce_mean(tf.cast(net, tf.float32), layout.pixels, keepdims=True)
        with tf.variable_scope('logits'):
            logits = conv(tf.cast(net, images.dtype), num_classes, (1, 1), initializer=_LOGITS_INITIALIZER)
            logits = tf.squeeze(layers.add_bias(logits, layout), layout.pixels)
    return logits, None
