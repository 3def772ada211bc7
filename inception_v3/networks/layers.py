"""The layers that the networks share."""

import functools
from typing import Any, Callable, NamedTuple, Tuple

from compat import tf

# The normalization and the convolution that a network is given. The arguments of a normalization are those of
# `batch_norm.BatchNorm.__call__`, and the arguments of a convolution are those of `conv2d`.
Norm = Callable[..., tf.Tensor]
Conv = Callable[..., tf.Tensor]
# Arguments: tensor, probability that a value is kept, whether this is training. Returns a tensor.
Dropout = Callable[[tf.Tensor, float, bool], tf.Tensor]


class Layout(NamedTuple):
    """The order of the axes of activations.

    Attributes:
      name: TensorFlow's name of the layout, its `data_format`.
      channels: the axis of the channels.
      pixels: the axes of height and width.
    """

    name: str
    channels: int
    pixels: Tuple[int, int]

    def ordered(self, batch: Any, height: Any, width: Any, channels: Any) -> Tuple[Any, Any, Any, Any]:
        """The four arguments, one per axis, in this layout's order."""
        return (batch, channels, height, width) if self.channels == 1 else (batch, height, width, channels)


NHWC = Layout('NHWC', 3, (1, 2))
# Only GPUs have all kernels for this layout.
NCHW = Layout('NCHW', 1, (2, 3))

# The smallest number of channels with a depth multiplier.
MIN_DEPTH = 16

# He et al., "Delving Deep into Rectifiers", equation 10.
HE_INITIALIZER = tf.variance_scaling_initializer(scale=2.0, mode='fan_in', distribution='truncated_normal')


def conv2d(
    inputs: tf.Tensor,
    depth: int,
    kernel: Tuple[int, int],
    stride: int = 1,
    padding: str = 'SAME',
    initializer: Any = HE_INITIALIZER,
    in_float32: bool = False,
    layout: Layout = NHWC,
) -> tf.Tensor:
    """A convolution without bias. Its variable `weights` is in the collection WEIGHTS, to which weight decay applies.

    Inputs and outputs are [batch, height, width, channels], or as `layout` says, of one dtype: float32, bfloat16 or
    float16. With `in_float32`, inputs and weights are rounded to the inputs' dtype, but multiplied and summed in
    float32, for devices without a convolution of that dtype. A TPU also sums bfloat16 products in float32.
    """
    shape = [*kernel, inputs.shape[layout.channels], depth]
    collections = [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.WEIGHTS]
    weights = tf.get_variable('weights', shape, initializer=initializer, collections=collections)
    held = tf.cast(weights, inputs.dtype)
    if not in_float32:
        return tf.nn.conv2d(inputs, held, stride, padding, data_format=layout.name)
    rounded = tf.cast(inputs, tf.float32), tf.cast(held, tf.float32)
    outputs = tf.nn.conv2d(*rounded, stride, padding, data_format=layout.name)
    return tf.cast(outputs, inputs.dtype)


def conv_for(dtype: tf.DType, on_cpu: bool, layout: Layout = NHWC) -> Conv:
    """The convolution for a dtype and a device.

    Unlike TPUs and GPUs, CPUs have no 16-bit convolution that sums in float32.
    """
    return functools.partial(conv2d, in_float32=dtype.size == 2 and on_cpu, layout=layout)


def scaled_depth(depth: int, multiplier: float) -> int:
    """`depth`, a number of channels in the paper, times the depth multiplier; at least 16."""
    return max(int(depth * multiplier), MIN_DEPTH)


def padded(inputs: tf.Tensor, window: int, layout: Layout = NHWC) -> tf.Tensor:
    """Pads images on all sides, so that the centre of an odd window can lie on every pixel.

    padding='SAME' differs: for a stride of 2 and an even size, its windows start one pixel later.
    """
    side = (window - 1) // 2
    if side == 0:
        return inputs
    return tf.pad(inputs, layout.ordered([0, 0], [side, side], [side, side], [0, 0]))


def add_bias(inputs: tf.Tensor, layout: Layout = NHWC) -> tf.Tensor:
    """Adds the variable `biases`, one per channel, initially 0."""
    biases = tf.get_variable('biases', [inputs.shape[layout.channels]], initializer=tf.zeros_initializer())
    held = tf.cast(biases, inputs.dtype)
    return inputs + (held if layout == NHWC else tf.reshape(held, [-1, 1, 1]))


def max_pool(inputs: tf.Tensor, window: int, stride: int, padding: str, layout: Layout = NHWC) -> tf.Tensor:
    """The maximum in each square window."""
    return tf.nn.max_pool2d(inputs, window, stride, padding, data_format=layout.name)


def average_pool(
    inputs: tf.Tensor, window: Tuple[int, int], stride: int, padding: str, layout: Layout = NHWC
) -> tf.Tensor:
    """The mean of each window, computed in float32; at a border, the mean of the pixels inside the image."""
    outputs = tf.nn.avg_pool2d(tf.cast(inputs, tf.float32), window, stride, padding, data_format=layout.name)
    return tf.cast(outputs, inputs.dtype)


def dropout(inputs: tf.Tensor, keep: float, is_training: bool) -> tf.Tensor:
    """In training, zeroes each value with probability 1 - keep and scales the rest by 1 / keep."""
    return tf.nn.dropout(inputs, rate=1 - keep) if is_training else inputs
