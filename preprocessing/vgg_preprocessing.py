"""The VGG preprocessing: resize by the smaller side, crop, flip in training, subtract the mean colour.

Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", section 3.1.
"""

from typing import NamedTuple

import tensorflow as tf

# Mean red, green and blue of ImageNet's training images, for pixels in [0, 255].
CHANNEL_MEANS = (123.68, 116.78, 103.94)

# The range of the smaller side, for crops of this size; other sizes scale it.
CROP_SIZE = 299
RESIZE_SIDE_MIN = 300
RESIZE_SIDE_MAX = 600


class Distortion(NamedTuple):
    """All that is random in the preprocessing of one training image.

    Attributes:
      side: int32 scalar, the smaller side after resizing, in pixels.
      top: float32 scalar in [0, 1), where the crop lies between the topmost and the lowest place.
      left: float32 scalar in [0, 1), the same between left and right.
      flip: bool scalar, whether to mirror left and right.
    """

    side: tf.Tensor
    top: tf.Tensor
    left: tf.Tensor
    flip: tf.Tensor


def draw_distortion(resize_side_min: int, resize_side_max: int, random_flip: bool = True) -> Distortion:
    """Draws everything that is random about one training image; arguments as for `preprocess_image`."""
    return Distortion(
        side=tf.random.uniform([], resize_side_min, resize_side_max + 1, tf.int32),
        top=tf.random.uniform([]),
        left=tf.random.uniform([]),
        flip=tf.random.uniform([]) < 0.5 if random_flip else tf.constant(False),
    )


def resize_smaller_side(image: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """Resizes an image bilinearly so that its smaller side is `side` and its shape is kept."""
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    scale = tf.cast(side, tf.float32) / tf.reduce_min(shape)
    size = tf.cast(tf.math.rint(shape * scale), tf.int32)
    return tf.compat.v1.image.resize_bilinear(image[tf.newaxis], size)[0]


def apply_distortion(image: tf.Tensor, distortion: Distortion, height: int, width: int) -> tf.Tensor:
    """Applies a drawn distortion; image and result as for `preprocess_image`."""
    image = resize_smaller_side(tf.cast(image, tf.float32), distortion.side)
    places = tf.shape(image)[:2] - [height, width] + 1
    fractions = tf.stack([distortion.top, distortion.left])
    begin = tf.cast(tf.floor(fractions * tf.cast(places, tf.float32)), tf.int32)
    image = _crop(image, tf.minimum(begin, places - 1), height, width)
    image = tf.cond(distortion.flip, lambda: tf.reverse(image, [1]), lambda: image)
    return image - CHANNEL_MEANS


def preprocess_image(
    image: tf.Tensor,
    height: int,
    width: int,
    is_training: bool = False,
    resize_side_min: int = RESIZE_SIDE_MIN,
    resize_side_max: int = RESIZE_SIDE_MAX,
    random_flip: bool = True,
) -> tf.Tensor:
    """Prepares an image for training or for evaluation.

    Args:
      image: [any height, any width, 3], of any numeric dtype, pixels in [0, 255].
      height: height of the result, in pixels; at most `resize_side_min`.
      width: width of the result, in pixels; at most `resize_side_min`.
      is_training: crop at random, with the smaller side uniform in the range; else centrally, with the
        smaller side at the range's lower end.
      resize_side_min: lower end of the range of the smaller side, in pixels.
      resize_side_max: upper end of the range, in pixels, included.
      random_flip: mirror half of the training images.

    Returns:
      float32 [height, width, 3]: pixels in [0, 255] less `CHANNEL_MEANS`.

    Raises:
      ValueError: the crop is larger than the smaller side, or the range is empty.
    """
    if max(height, width) > resize_side_min or resize_side_min > resize_side_max:
        raise ValueError(
            f'a crop of {height} x {width} pixels from images whose smaller side is {resize_side_min} to '
            f'{resize_side_max}: the crop must fit, and the range must not be empty.'
        )
    if is_training:
        return apply_distortion(image, draw_distortion(resize_side_min, resize_side_max, random_flip), height, width)
    image = resize_smaller_side(tf.cast(image, tf.float32), tf.constant(resize_side_min))
    begin = (tf.shape(image)[:2] - [height, width]) // 2
    return _crop(image, begin, height, width) - CHANNEL_MEANS


def _crop(image: tf.Tensor, begin: tf.Tensor, height: int, width: int) -> tf.Tensor:
    cropped = tf.slice(image, tf.concat([begin, [0]], 0), [height, width, -1])
    cropped.set_shape([height, width, 3])
    return cropped
