"""Decodes large JPEGs at a half or a quarter of their sides.

libjpeg computes an image at 1/r of its sides from a part of the cosine coefficients: each reduced pixel is the mean of
r x r pixels. The codes of all coefficients must be read all the same, so this saves less than the number of pixels
suggests. The results differ from those of all pixels, of which bilinear resizing to a small size reads only some.
"""

from typing import Any, Tuple

from console.tensorflow_versions import tf
from preprocessing.decoding import Crop, decode_crop, decode_reduced, is_whole_jpeg
from preprocessing.preprocessings import Preprocessing

REDUCTIONS = (2, 4)


def decode_and_resize(
    preprocessing: Preprocessing, encoded: tf.Tensor, image_shape: tf.Tensor, window: Any, height: int, width: int
) -> tf.Tensor:
    """Decodes the pixels of a window, reduced as far as its size allows, and resizes them.

    A window that is at least r times as high and as wide as the result is decoded at 1/r of its sides, for r = 4, or
    else r = 2. Smaller windows, and files that are no JPEG, are decoded as without this module.

    Args:
      preprocessing: the kind of preprocessing; its resizing is bilinear.
      encoded: string scalar, the bytes of the file.
      image_shape: int32 [3], height, width and channels of the image.
      window: as `preprocessing.crop` returns it for the image.
      height: height of the result, in pixels.
      width: width of the result, in pixels.

    Returns:
      float32 [height, width, 3], in [0, 255].
    """
    # Decode only after the check of the number of pixels: see `decode_crop`.
    with tf.control_dependencies([image_shape]):
        checked = tf.identity(encoded)

    def unreduced() -> tf.Tensor:
        return preprocessing.resize(decode_crop(checked, image_shape, window.crop), window)

    def reduced(reduction: int) -> tf.Tensor:
        return decode_and_resize_reduced(preprocessing, checked, image_shape, window, reduction)

    times = tf.minimum(window.crop.height // height, window.crop.width // width)
    times = times * tf.cast(is_whole_jpeg(encoded), tf.int32)
    half, quarter = REDUCTIONS
    return tf.cond(
        times >= half,
        lambda: tf.cond(times >= quarter, lambda: reduced(quarter), lambda: reduced(half)),
        unreduced,
    )


def decode_and_resize_reduced(
    preprocessing: Preprocessing, encoded: tf.Tensor, image_shape: tf.Tensor, window: Any, reduction: int
) -> tf.Tensor:
    """Decodes the pixels of a JPEG's window at 1/`reduction` of its sides, and resizes them as `decode_and_resize`."""
    crop, box = reduced_window(preprocessing.positions(window), image_shape, reduction)
    pixels = decode_reduced(encoded, crop, reduction)
    pixels, box = tf.cond(
        tf.reduce_any(box < 0), lambda: (_with_first_pixels_repeated(pixels), box + 1), lambda: (pixels, box)
    )
    return preprocessing.resize(pixels, window, box)


def _with_first_pixels_repeated(pixels: tf.Tensor) -> tf.Tensor:
    """Adds a copy of the first row and of the first column to an image [height, width, 3]."""
    # TensorFlow concatenates whole rows fast.
    shape = tf.shape(pixels)
    rows = tf.reshape(pixels, [shape[0], -1])
    rows = tf.concat([rows[:, :3], rows], 1)
    rows = tf.concat([rows[:1], rows], 0)
    return tf.reshape(rows, [shape[0] + 1, shape[1] + 1, 3])


def reduced_window(positions: tf.Tensor, image_shape: tf.Tensor, reduction: int) -> Tuple[Crop, tf.Tensor]:
    """Returns the reduced pixels that a result is computed from, and its place among them.

    The centre of reduced pixel j lies at r * j + (r - 1) / 2 in the image.

    Args:
      positions: float64 [4], the positions of the result's first and last pixels in the image: top, left, bottom,
        right.
      image_shape: int32 [3], height, width and channels of the image.
      reduction: r.

    Returns:
      The box of the reduced pixels; and float32 [4], the positions of the result's first and last pixels within it.
      The first are negative, but above -1/2, if they lie before the centre of the first reduced pixel.
    """
    sides = -(-image_shape[:2] // reduction)
    ends = tf.cast(tf.tile(sides - 1, [2]), tf.float64)
    places = tf.minimum((positions - (reduction - 1) / 2) / reduction, ends)
    low = tf.maximum(tf.cast(tf.floor(places[:2]), tf.int32), 0)
    size = tf.minimum(tf.cast(tf.floor(places[2:]), tf.int32) + 2, sides) - low
    box = places - tf.cast(tf.tile(low, [2]), tf.float64)
    return Crop(low[0], low[1], size[0], size[1]), tf.cast(box, tf.float32)
