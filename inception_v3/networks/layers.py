"""The layers that networks are made of."""

import functools
from typing import Any, Callable, Tuple

import tensorflow as tf

# Tensors in, tensors out: what networks take their normalization, convolution and dropout as. What a network may tell
# its normalization besides is in `batch_norm.BatchNorm.__call__`.
Norm = Callable[..., tf.Tensor]
Conv = Callable[..., tf.Tensor]
# Tensor, probability that a value is kept, and whether this is training, in; tensor out.
Dropout = Callable[[tf.Tensor, float, bool], tf.Tensor]

# A depth multiplier leaves so many channels.
MIN_DEPTH = 16

# He et al., "Delving Deep into Rectifiers", equation 10.
HE_INITIALIZER = tf.compat.v1.variance_scaling_initializer(scale=2.0, mode='fan_in', distribution='truncated_normal')


def conv2d(
    inputs: tf.Tensor,
    depth: int,
    kernel: Tuple[int, int],
    stride: int = 1,
    padding: str = 'SAME',
    initializer: Any = HE_INITIALIZER,
    in_float32: bool = False,
) -> tf.Tensor:
    """A convolution without bias; its variable is `weights`, and is in the collection WEIGHTS, which decays.

    Args:
      inputs: [batch, height, width, channels], float32 or bfloat16.
      depth: channels of the result.
      kernel: height and width of the window.
      stride: step of the window, in both directions.
      padding: 'SAME' or 'VALID'.
      initializer: of the weights.
      in_float32: multiply and sum in float32 what the inputs' dtype holds of inputs and weights, for devices that
        have no convolution in bfloat16. A TPU sums bfloat16 products in float32, too.

    Returns:
      [batch, new height, new width, depth], of the inputs' dtype.
    """
    shape = [*kernel, inputs.shape[-1], depth]
    collections = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.WEIGHTS]
    weights = tf.compat.v1.get_variable('weights', shape, initializer=initializer, collections=collections)
    held = tf.cast(weights, inputs.dtype)
    if not in_float32:
        return tf.nn.conv2d(inputs, held, stride, padding)
    outputs = tf.nn.conv2d(tf.cast(inputs, tf.float32), tf.cast(held, tf.float32), stride, padding)
    return tf.cast(outputs, inputs.dtype)


def conv_for(dtype: tf.DType, on_tpu: bool) -> Conv:
    """The convolution for activations of a dtype on a device: CPUs have none in bfloat16."""
    return functools.partial(conv2d, in_float32=dtype == tf.bfloat16 and not on_tpu)


def scaled_depth(depth: int, multiplier: float) -> int:
    """The channels of a layer that has `depth` of them in the paper: so many times as many, and at least 16."""
    return max(int(depth * multiplier), MIN_DEPTH)


def padded(inputs: tf.Tensor, window: int, value: float = 0.0) -> tf.Tensor:
    """Images with as much space on both sides as keeps an odd window's centre on each of their pixels.

    With padding='SAME', a step of 2 would have the window of an even image begin one pixel further on.
    """
    side = (window - 1) // 2
    if side == 0:
        return inputs
    return tf.pad(inputs, [[0, 0], [side, side], [side, side], [0, 0]], constant_values=value)


def add_bias(inputs: tf.Tensor) -> tf.Tensor:
    """Adds the variable `biases`, one per channel, initially 0."""
    biases = tf.compat.v1.get_variable('biases', [inputs.shape[-1]], initializer=tf.zeros_initializer())
    return inputs + tf.cast(biases, inputs.dtype)


def max_pool(inputs: tf.Tensor, window: int, stride: int, padding: str) -> tf.Tensor:
    """The maximum in each square window."""
    return tf.nn.max_pool2d(inputs, window, stride, padding)


def average_pool(inputs: tf.Tensor, window: Tuple[int, int], stride: int, padding: str) -> tf.Tensor:
    """The mean of each window, computed in float32; at a border, of what lies inside the image."""
    outputs = tf.nn.avg_pool2d(tf.cast(inputs, tf.float32), window, stride, padding)
    return tf.cast(outputs, inputs.dtype)


def dropout(inputs: tf.Tensor, keep: float, is_training: bool) -> tf.Tensor:
    """In training, zeroes each value with probability 1 - keep and scales the others by 1 / keep."""
    return tf.nn.dropout(inputs, rate=1 - keep) if is_training else inputs
