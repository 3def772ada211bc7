"""The VGG preprocessing: resize by the smaller side, crop, flip in training, subtract the channel means.

Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", section 3.1.
"""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import tf
from preprocessing.decoding import Crop, apply_crop
from preprocessing.finishing import apply_flip, subtract_mean
from preprocessing.geometry import sample
from preprocessing.stateless import Uniform

# The range of the smaller side after resizing, in pixels, for crops of this size.
CROP_SIZE = 299
RESIZE_SIDE_MIN = 300
RESIZE_SIDE_MAX = 600


class Settings(NamedTuple):
    """The settings of the VGG preprocessing, named like the flags that set them.

    Attributes:
      height: height of the network's images, in pixels.
      width: width of the network's images, in pixels.
      random_flip: mirror half of the training images.
    """

    height: int
    width: int
    random_flip: bool = True


def resize_range(height: int, width: int) -> Tuple[int, int]:
    """Returns the range of the smaller side for a crop size, in pixels.

    It is 300 to 600 for 299-pixel crops, and in proportion for other sizes.
    """
    scale = max(height, width) / CROP_SIZE
    return round(RESIZE_SIDE_MIN * scale), round(RESIZE_SIDE_MAX * scale)


class Distortion(NamedTuple):
    """The random numbers in the preprocessing of one training image.

    Attributes:
      side: int32 scalar, the smaller side after resizing, in pixels.
      top: float32 scalar in [0, 1), the vertical position of the crop, from topmost to lowest.
      left: float32 scalar in [0, 1), the horizontal position of the crop, from leftmost to rightmost.
      flip: bool scalar, whether to mirror left to right.
    """

    side: tf.Tensor
    top: tf.Tensor
    left: tf.Tensor
    flip: tf.Tensor


def draw_distortion(
    resize_side_min: int, resize_side_max: int, random_flip: bool = True, uniform: Uniform = tf.random.uniform
) -> Distortion:
    """Draws the random numbers of one training image, or of a group.

    A seed must give the same numbers in every version, so the order of the draws must not change.

    Args:
      resize_side_min: lower end of the range of the smaller side, in pixels.
      resize_side_max: upper end of the range, in pixels, included.
      random_flip: mirror half of the images.
      uniform: draws the numbers.
    """
    return Distortion(
        side=uniform([], resize_side_min, resize_side_max + 1, tf.int32),
        top=uniform([]),
        left=uniform([]),
        flip=uniform([]) < 0.5 if random_flip else tf.constant(False),
    )


class Window(NamedTuple):
    """The part of an image that becomes a crop of the resized image.

    Attributes:
      crop: the box of the image's pixels that the result is computed from.
      box: float32 [4], the positions of the result's first and last pixels within `crop`: top, left, bottom, right, in
        pixels of the image.
      is_enlarged: bool scalar, whether resizing enlarges the image; the result's last pixels may then lie beyond the
        image's last pixels.
    """

    crop: Crop
    box: tf.Tensor
    is_enlarged: tf.Tensor


def draw_window(image_shape: tf.Tensor, distortion: Distortion, height: int, width: int) -> Window:
    """Returns the window of a drawn distortion.

    Args:
      image_shape: int32 [3], height, width and channels of the image.
      distortion: as `draw_distortion` draws it.
      height: height of the crop of the resized image, in pixels.
      width: width of the crop of the resized image, in pixels.
    """
    size = resized_size(image_shape, distortion.side)
    positions = size - [height, width] + 1
    fractions = tf.stack([distortion.top, distortion.left])
    begin = tf.cast(tf.floor(fractions * tf.cast(positions, tf.float32)), tf.int32)
    return _window(image_shape, size, tf.minimum(begin, positions - 1), height, width)


def central_window(image_shape: tf.Tensor, side: int, height: int, width: int) -> Window:
    """Returns the window of the central crop of an image whose smaller side is resized to `side` pixels."""
    size = resized_size(image_shape, tf.constant(side))
    return _window(image_shape, size, (size - [height, width]) // 2, height, width)


def resized_size(image_shape: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """Returns height and width, int32 [2], of an image resized to the smaller side `side` at its aspect ratio."""
    sides = tf.cast(image_shape[:2], tf.float32)
    return tf.cast(tf.math.rint(sides * (tf.cast(side, tf.float32) / tf.reduce_min(sides))), tf.int32)


def _window(image_shape: tf.Tensor, size: tf.Tensor, begin: tf.Tensor, height: int, width: int) -> Window:
    """Returns the window of a crop that begins at `begin` in the image resized to `size`."""
    # tf.image.resize_bilinear computes pixel i of a resized side from the pixels around i * step.
    step = tf.cast(image_shape[:2], tf.float64) / tf.cast(size, tf.float64)
    first = tf.cast(begin, tf.float64) * step
    last = tf.cast(begin + tf.constant([height - 1, width - 1]), tf.float64) * step
    low = tf.cast(tf.floor(first), tf.int32)
    count = tf.minimum(tf.cast(tf.floor(last), tf.int32) + 2, image_shape[:2]) - low
    box = tf.concat([first, last], 0) - tf.cast(tf.tile(low, [2]), tf.float64)
    return Window(Crop(low[0], low[1], count[0], count[1]), tf.cast(box, tf.float32), tf.reduce_any(step < 1.0))


def resize_window(pixels: tf.Tensor, window: Window, height: int, width: int) -> tf.Tensor:
    """Resizes the pixels of a window; the result equals resizing the whole image and then cropping it.

    Args:
      pixels: [crop height, crop width, 3], the pixels in `window.crop`, of any numeric dtype.
      window: the window of the crop.
      height: height of the crop, in pixels.
      width: width of the crop, in pixels.

    Returns:
      float32 [height, width, 3], with pixels of the same range.
    """
    # Bilinear resizing repeats the image's last pixels beyond its edge.
    pixels = tf.cond(window.is_enlarged, lambda: _with_last_pixels_repeated(pixels), lambda: pixels)
    return sample(pixels, window.box, height, width)


def _with_last_pixels_repeated(pixels: tf.Tensor) -> tf.Tensor:
    """Adds a copy of the last row and of the last column to an image [height, width, 3]."""
    # TensorFlow concatenates whole rows, but `tf.pad` mirrors single values, in 50 times as long.
    shape = tf.shape(pixels)
    rows = tf.reshape(pixels, [shape[0], -1])
    rows = tf.concat([rows, rows[:, -3:]], 1)
    rows = tf.concat([rows, rows[-1:]], 0)
    return tf.reshape(rows, [shape[0] + 1, shape[1] + 1, 3])


def apply_distortion(image: tf.Tensor, distortion: Distortion, height: int, width: int) -> tf.Tensor:
    """Applies a drawn distortion; the other arguments and the result are those of `preprocess_image`."""
    window = draw_window(tf.shape(image), distortion, height, width)
    resized = resize_window(apply_crop(image, window.crop), window, height, width)
    return subtract_mean(apply_flip(resized, distortion.flip))


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
      is_training: draw the smaller side uniformly from the range, and the crop at random. Otherwise crop centrally,
        with the smaller side at the range's lower end.
      resize_side_min: lower end of the range of the smaller side, in pixels.
      resize_side_max: upper end of the range, in pixels, included.
      random_flip: mirror half of the training images.

    Returns:
      float32 [height, width, 3]: pixels in [0, 255] minus `CHANNEL_MEANS`.

    Raises:
      ValueError: the crop is larger than the smaller side may be, or the range is empty.
    """
    if max(height, width) > resize_side_min or resize_side_min > resize_side_max:
        raise ValueError(
            f'height={height} and width={width} must be at most resize_side_min={resize_side_min}, and '
            f'resize_side_min at most resize_side_max={resize_side_max}.'
        )
    if is_training:
        return apply_distortion(image, draw_distortion(resize_side_min, resize_side_max, random_flip), height, width)
    window = central_window(tf.shape(image), resize_side_min, height, width)
    return subtract_mean(resize_window(apply_crop(image, window.crop), window, height, width))
