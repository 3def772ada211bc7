"""Inception v3.

Szegedy, Vanhoucke, Ioffe, Shlens & Wojna, "Rethinking the Inception Architecture for Computer Vision", table 1 and
figures 4 to 8. Variables have the names and shapes of TF-Slim's `InceptionV3`, so that each can read the other's
checkpoints.
"""

from typing import NamedTuple, Optional, Sequence, Tuple, Union

from compat import tf
from inception_v3.networks import layers

DROPOUT_KEEP = 0.8

_AUXILIARY_INITIALIZER = tf.truncated_normal_initializer(stddev=0.01)
_AUXILIARY_LOGITS_INITIALIZER = tf.truncated_normal_initializer(stddev=0.001)


class Conv(NamedTuple):
    """A convolution, batch normalization and ReLU."""

    place: str
    depth: int
    kernel: Tuple[int, int]
    stride: int = 1
    padding: str = 'SAME'
    name: str = ''

    @property
    def scope(self) -> str:
        """The scope of the convolution's variables."""
        return self.name or f'Conv2d_{self.place}_{self.kernel[0]}x{self.kernel[1]}'


class MaxPool(NamedTuple):
    """The maximum of 3 x 3 windows."""

    stride: int = 2
    padding: str = 'VALID'


class AveragePool(NamedTuple):
    """The mean of 3 x 3 windows with stride 1."""


class Fork(NamedTuple):
    """Parallel convolutions of one input; their channels are concatenated."""

    convs: Sequence[Conv]


Pool = Union[MaxPool, AveragePool]
Branch = Sequence[Union[Conv, Pool, Fork]]


class Mixed(NamedTuple):
    """Parallel branches of one input; their channels are concatenated."""

    scope: str
    branches: Sequence[Branch]


# Input 299 x 299 x 3; each comment gives the output size.
STEM: Branch = (
    Conv('1a', 32, (3, 3), stride=2, padding='VALID'),  # 149 x 149 x 32
    Conv('2a', 32, (3, 3), padding='VALID'),  # 147 x 147 x 32
    Conv('2b', 64, (3, 3)),  # 147 x 147 x 64
    MaxPool(),  # 73 x 73 x 64
    Conv('3b', 80, (1, 1), padding='VALID'),  # 73 x 73 x 80
    Conv('4a', 192, (3, 3), padding='VALID'),  # 71 x 71 x 192
    MaxPool(),  # 35 x 35 x 192
)


def _factorized_5x5(scope: str, pool_depth: int, names_5x5: Sequence[str] = ('', '')) -> Mixed:
    """Figure 5: a branch with a 5 x 5 convolution, and one with two 3 x 3 convolutions instead."""
    return Mixed(
        scope,
        (
            [Conv('0a', 64, (1, 1))],
            [Conv('0a', 48, (1, 1), name=names_5x5[0]), Conv('0b', 64, (5, 5), name=names_5x5[1])],
            [Conv('0a', 64, (1, 1)), Conv('0b', 96, (3, 3)), Conv('0c', 96, (3, 3))],
            [AveragePool(), Conv('0b', pool_depth, (1, 1))],
        ),
    )


def _factorized_7x7(scope: str, depth: int) -> Mixed:
    """Figure 6: n x n convolutions factorized into 1 x n and n x 1, with n = 7."""
    return Mixed(
        scope,
        (
            [Conv('0a', 192, (1, 1))],
            [Conv('0a', depth, (1, 1)), Conv('0b', depth, (1, 7)), Conv('0c', 192, (7, 1))],
            [
                Conv('0a', depth, (1, 1)),
                Conv('0b', depth, (7, 1)),
                Conv('0c', depth, (1, 7)),
                Conv('0d', depth, (7, 1)),
                Conv('0e', 192, (1, 7)),
            ],
            [AveragePool(), Conv('0b', 192, (1, 1))],
        ),
    )


def expanded(scope: str, place_3x1: str, pool: Pool) -> Mixed:
    """Figure 7: 3 x 3 convolutions as parallel 1 x 3 and 3 x 1, for many channels on the coarsest grid."""
    return Mixed(
        scope,
        (
            [Conv('0a', 320, (1, 1))],
            [Conv('0a', 384, (1, 1)), Fork([Conv('0b', 384, (1, 3)), Conv(place_3x1, 384, (3, 1))])],
            [
                Conv('0a', 448, (1, 1)),
                Conv('0b', 384, (3, 3)),
                Fork([Conv('0c', 384, (1, 3)), Conv('0d', 384, (3, 1))]),
            ],
            [pool, Conv('0b', 192, (1, 1))],
        ),
    )


MIXED_35 = (
    _factorized_5x5('Mixed_5b', pool_depth=32),  # 35 x 35 x 256
    # TF-Slim's names for these two convolutions do not follow the pattern.
    _factorized_5x5('Mixed_5c', pool_depth=64, names_5x5=('Conv2d_0b_1x1', 'Conv_1_0c_5x5')),  # 35 x 35 x 288
    _factorized_5x5('Mixed_5d', pool_depth=64),  # 35 x 35 x 288
)
MIXED_17 = (
    # Figure 10: reduces the grid by parallel convolution and pooling, without a bottleneck.
    Mixed(
        'Mixed_6a',  # 17 x 17 x 768
        (
            [Conv('1a', 384, (3, 3), stride=2, padding='VALID', name='Conv2d_1a_1x1')],
            [
                Conv('0a', 64, (1, 1)),
                Conv('0b', 96, (3, 3)),
                Conv('1a', 96, (3, 3), stride=2, padding='VALID', name='Conv2d_1a_1x1'),
            ],
            [MaxPool()],
        ),
    ),
    _factorized_7x7('Mixed_6b', depth=128),  # 17 x 17 x 768
    _factorized_7x7('Mixed_6c', depth=160),  # 17 x 17 x 768
    _factorized_7x7('Mixed_6d', depth=160),  # 17 x 17 x 768
    _factorized_7x7('Mixed_6e', depth=192),  # 17 x 17 x 768; the auxiliary head's input
)
MIXED_8 = (
    Mixed(
        'Mixed_7a',  # 8 x 8 x 1280
        (
            [Conv('0a', 192, (1, 1)), Conv('1a', 320, (3, 3), stride=2, padding='VALID')],
            [
                Conv('0a', 192, (1, 1)),
                Conv('0b', 192, (1, 7)),
                Conv('0c', 192, (7, 1)),
                Conv('1a', 192, (3, 3), stride=2, padding='VALID'),
            ],
            [MaxPool()],
        ),
    ),
    expanded('Mixed_7b', place_3x1='0b', pool=AveragePool()),  # 8 x 8 x 2048
    expanded('Mixed_7c', place_3x1='0c', pool=AveragePool()),  # 8 x 8 x 2048
)


class _Builder:
    """Builds the rows of the tables above with a given convolution and normalization."""

    def __init__(self, conv: layers.Conv, norm: layers.Norm, depth_multiplier: float, layout: layers.Layout):
        self._conv = conv
        self._norm = norm
        self._depth_multiplier = depth_multiplier
        self.layout = layout

    def conv(self, net: tf.Tensor, row: Conv, initializer: object = layers.HE_INITIALIZER) -> tf.Tensor:
        depth = layers.scaled_depth(row.depth, self._depth_multiplier)
        with tf.variable_scope(row.scope):
            net = self._conv(net, depth, row.kernel, row.stride, row.padding, initializer=initializer)
            return tf.nn.relu(self._norm(net))

    def branch(self, net: tf.Tensor, rows: Branch) -> tf.Tensor:
        for row in rows:
            if isinstance(row, Conv):
                net = self.conv(net, row)
            elif isinstance(row, MaxPool):
                net = layers.max_pool(net, 3, row.stride, row.padding, layout=self.layout)
            elif isinstance(row, AveragePool):
                net = layers.average_pool(net, (3, 3), stride=1, padding='SAME', layout=self.layout)
            else:
                net = tf.concat([self.conv(net, conv) for conv in row.convs], axis=self.layout.channels)
        return net

    def mixed(self, net: tf.Tensor, blocks: Sequence[Mixed]) -> tf.Tensor:
        for block in blocks:
            with tf.variable_scope(block.scope):
                outputs = []
                for number, rows in enumerate(block.branches):
                    with tf.variable_scope(f'Branch_{number}'):
                        outputs.append(self.branch(net, rows))
                net = tf.concat(outputs, axis=self.layout.channels)
        return net

    def logits(self, net: tf.Tensor, scope: str, num_classes: int, initializer: object) -> tf.Tensor:
        """A 1 x 1 convolution with biases on a 1 x 1 map."""
        with tf.variable_scope(scope):
            net = layers.add_bias(self._conv(net, num_classes, (1, 1), initializer=initializer), self.layout)
        return tf.squeeze(net, self.layout.pixels)


def inception_v3(
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    dropout: layers.Dropout = layers.dropout,
    depth_multiplier: float = 1.0,
    auxiliary_head: bool = True,
    layout: layers.Layout = layers.NHWC,
    mixed_8: Sequence[Mixed] = MIXED_8,
) -> Tuple[tf.Tensor, Optional[tf.Tensor]]:
    """Builds the network, as `registry.Network.build` describes it.

    Images have at least 75 x 75 pixels, or 107 x 107 with the auxiliary head, whose 5 x 5 pooling needs them. The
    `dropout`, like `layers.dropout`, keeps a value before the logits with the probability `DROPOUT_KEEP`. The blocks on
    the coarsest grid are `mixed_8`.
    """
    builder = _Builder(conv, norm, depth_multiplier, layout)
    with tf.variable_scope('InceptionV3'):
        net = builder.branch(images, STEM)
        net = builder.mixed(net, MIXED_35)
        net = builder.mixed(net, MIXED_17)
        auxiliary_logits = _auxiliary_head(builder, net, num_classes) if auxiliary_head else None
        net = builder.mixed(net, mixed_8)
        with tf.variable_scope('Logits'):
            net = layers.average_pool(net, _at_most(net, 8, layout), stride=1, padding='VALID', layout=layout)
            # For inputs above 299 pixels, pooling leaves more than one position.
            net = tf.reduce_mean(net, layout.pixels, keepdims=True)
            net = dropout(net, DROPOUT_KEEP, is_training)
            logits = builder.logits(net, 'Conv2d_1c_1x1', num_classes, layers.HE_INITIALIZER)
    return logits, auxiliary_logits


def _auxiliary_head(builder: _Builder, net: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Figure 8: a classifier on the last 17 x 17 map, whose gradient regularizes the layers below."""
    with tf.variable_scope('AuxLogits'):
        layout = builder.layout
        net = layers.average_pool(net, (5, 5), stride=3, padding='VALID', layout=layout)
        net = builder.conv(net, Conv('1b', 128, (1, 1)))
        # 5 x 5 at 299 pixels; a smaller input leaves a smaller map.
        net = builder.conv(net, Conv('2a', 768, _at_most(net, 5, layout), padding='VALID'), _AUXILIARY_INITIALIZER)
        net = tf.reduce_mean(net, layout.pixels, keepdims=True)
        return builder.logits(net, 'Conv2d_2b_1x1', num_classes, _AUXILIARY_LOGITS_INITIALIZER)


def _at_most(net: tf.Tensor, size: int, layout: layers.Layout) -> Tuple[int, int]:
    """A window of size x size, limited to the size of the map."""
    height, width = (int(net.shape[axis]) for axis in layout.pixels)
    return min(size, height), min(size, width)
