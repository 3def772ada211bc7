"""Resizes and mirrors images."""

import functools
from typing import Callable, Union

from compat import tf
from compat.tensorflow import CASTS_IN_VECTORS

RESIZE_METHODS = (
    tf.image.ResizeMethod.BILINEAR,
    tf.image.ResizeMethod.NEAREST_NEIGHBOR,
    tf.image.ResizeMethod.BICUBIC,
    tf.image.ResizeMethod.AREA,
)
BILINEAR = 0

# A bilinear kernel converts integers to floats itself, four for each number of the result. Converting the image
# beforehand costs less up to this many numbers of the image per number of the result.
_FLOATS_UP_TO = 3.0 if CASTS_IN_VECTORS else 1.0


def apply_resize(image: tf.Tensor, height: int, width: int, method: Union[int, tf.Tensor]) -> tf.Tensor:
    """Resizes an image [any height, any width, channels] to float32 [height, width, channels], of the same range.

    `method` is an index into `RESIZE_METHODS`, as an integer or an int32 scalar.
    """
    constant = method if isinstance(method, int) else tf.get_static_value(method)
    if constant is not None:
        resized = _resize(image, height, width, RESIZE_METHODS[constant])
    else:
        branches = [functools.partial(_resize, image, height, width, m) for m in RESIZE_METHODS]
        resized = tf.switch_case(method, branches)
    resized.set_shape([height, width, image.shape[2]])
    return resized


def _resize(image: tf.Tensor, height: int, width: int, method: tf.image.ResizeMethod) -> tf.Tensor:
    def resize(image: tf.Tensor) -> tf.Tensor:
        # If an image already has the right size, TensorFlow returns it unchanged, so integers remain integers.
        return tf.cast(tf.image.resize(image, [height, width], method), tf.float32)

    if method != tf.image.ResizeMethod.BILINEAR:
        return resize(tf.cast(image, tf.float32))
    return with_fewest_conversions(resize, image, height, width)


def with_fewest_conversions(
    bilinear: Callable[[tf.Tensor], tf.Tensor], image: tf.Tensor, height: int, width: int
) -> tf.Tensor:
    """Applies a bilinear kernel to an image, or to the image in float32 if that costs less. The results are the same.

    The kernel resizes [any height, any width, channels] of any numeric dtype to float32 [height, width, channels].
    """
    if image.dtype.is_floating:
        return bilinear(tf.cast(image, tf.float32))
    is_small = tf.size(image) < int(_FLOATS_UP_TO * height * width * int(image.shape[2]))
    return tf.cond(is_small, lambda: bilinear(tf.cast(image, tf.float32)), lambda: bilinear(image))


def sample(image: tf.Tensor, box: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Samples an image [any height, any width, 3] bilinearly at positions with equal distances.

    The first and last pixels of the result, float32 [height, width, 3], are at the positions of `box`, float32 [4]:
    top, left, bottom, right, in pixels.
    """
    ends = tf.cast(tf.tile(tf.shape(image)[:2] - 1, [2]), tf.float32)
    boxes = [box / ends]

    def bilinear(image: tf.Tensor) -> tf.Tensor:
        return tf.image.crop_and_resize(image[tf.newaxis], boxes, [0], [height, width])[0]

    sampled = with_fewest_conversions(bilinear, image, height, width)
    sampled.set_shape([height, width, 3])
    return sampled
