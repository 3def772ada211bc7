"""The VGG preprocessing: resize by the smaller side, crop, flip in training, subtract the mean colour.

Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", section 3.1.
"""

from typing import NamedTuple

import tensorflow as tf

from preprocessing.decoding import Crop, apply_crop
from preprocessing.inception_preprocessing import add_to_channels, apply_flip
from preprocessing.stateless import Uniform

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


def draw_distortion(
    resize_side_min: int, resize_side_max: int, random_flip: bool = True, uniform: Uniform = tf.random.uniform
) -> Distortion:
    """Draws everything that is random about one training image.

    Arguments are those of `preprocess_image`, and `uniform`, which draws the numbers.
    """
    return Distortion(
        side=uniform([], resize_side_min, resize_side_max + 1, tf.int32),
        top=uniform([]),
        left=uniform([]),
        flip=uniform([]) < 0.5 if random_flip else tf.constant(False),
    )


class Window(NamedTuple):
    """What of an image a crop of its resized version shows.

    Attributes:
      crop: the box of the pixels that it is made of.
      box: float32 [4], the places in that box of the crop's first and last pixels: top, left, bottom, right, in
        pixels of the image.
      is_enlarged: bool scalar, whether the image is enlarged: the last pixels may lie beyond the image's then.
    """

    crop: Crop
    box: tf.Tensor
    is_enlarged: tf.Tensor


def draw_window(image_shape: tf.Tensor, distortion: Distortion, height: int, width: int) -> Window:
    """The window of a drawn distortion; arguments as for `apply_distortion`."""
    size = resized_size(image_shape, distortion.side)
    places = size - [height, width] + 1
    fractions = tf.stack([distortion.top, distortion.left])
    begin = tf.cast(tf.floor(fractions * tf.cast(places, tf.float32)), tf.int32)
    return _window(image_shape, size, tf.minimum(begin, places - 1), height, width)


def central_window(image_shape: tf.Tensor, side: int, height: int, width: int) -> Window:
    """The middle of an image whose smaller side is resized to `side` pixels."""
    size = resized_size(image_shape, tf.constant(side))
    return _window(image_shape, size, (size - [height, width]) // 2, height, width)


def resized_size(image_shape: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """Height and width of an image that keeps its shape, and has a smaller side of `side` pixels."""
    sides = tf.cast(image_shape[:2], tf.float32)
    return tf.cast(tf.math.rint(sides * (tf.cast(side, tf.float32) / tf.reduce_min(sides))), tf.int32)


def _window(image_shape: tf.Tensor, size: tf.Tensor, begin: tf.Tensor, height: int, width: int) -> Window:
    """The window of a crop that begins at `begin` in an image that is resized to `size`."""
    # Pixel i of a resized side is made of the pixels around i * step, as tf.image.resize_bilinear has it.
    step = tf.cast(image_shape[:2], tf.float64) / tf.cast(size, tf.float64)
    first = tf.cast(begin, tf.float64) * step
    last = tf.cast(begin + tf.constant([height - 1, width - 1]), tf.float64) * step
    low = tf.cast(tf.floor(first), tf.int32)
    count = tf.minimum(tf.cast(tf.floor(last), tf.int32) + 2, image_shape[:2]) - low
    places = tf.concat([first, last], 0) - tf.cast(tf.tile(low, [2]), tf.float64)
    return Window(Crop(low[0], low[1], count[0], count[1]), tf.cast(places, tf.float32), tf.reduce_any(step < 1.0))


def resize_window(pixels: tf.Tensor, window: Window, height: int, width: int) -> tf.Tensor:
    """Resizes the pixels of a window: to what resizing all of the image and cutting the crop out gives.

    Args:
      pixels: those of `window.crop`, [crop height, crop width, 3], of any numeric dtype.
      window: of the crop.
      height: height of the crop, in pixels.
      width: width of the crop, in pixels.

    Returns:
      float32 [height, width, 3], with pixels of the same range.
    """
    # Beyond the last pixels of the image are their copies.
    pixels = tf.cond(
        window.is_enlarged, lambda: tf.pad(pixels, [[0, 1], [0, 1], [0, 0]], mode='SYMMETRIC'), lambda: pixels
    )
    ends = tf.cast(tf.tile(tf.shape(pixels)[:2] - 1, [2]), tf.float32)
    resized = tf.image.crop_and_resize(pixels[tf.newaxis], [window.box / ends], [0], [height, width])[0]
    resized.set_shape([height, width, 3])
    return resized


def apply_distortion(image: tf.Tensor, distortion: Distortion, height: int, width: int) -> tf.Tensor:
    """Applies a drawn distortion; image and result as for `preprocess_image`."""
    window = draw_window(tf.shape(image), distortion, height, width)
    resized = resize_window(apply_crop(image, window.crop), window, height, width)
    return subtract_mean(apply_flip(resized, distortion.flip))


def subtract_mean(image: tf.Tensor) -> tf.Tensor:
    """Pixels in [0, 255], of one image or several, less `CHANNEL_MEANS`."""
    return add_to_channels(image, -tf.constant(CHANNEL_MEANS))


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
    window = central_window(tf.shape(image), resize_side_min, height, width)
    return subtract_mean(resize_window(apply_crop(image, window.crop), window, height, width))
