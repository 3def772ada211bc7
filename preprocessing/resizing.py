"""Decodes, crops and resizes encoded images."""

from typing import Any

from console.tensorflow_versions import tf
from preprocessing import draft
from preprocessing.decoding import apply_crop, decode_crop, image_shape, is_png
from preprocessing.preprocessings import preprocessing_for
from preprocessing.viewing import UPRIGHT, decode_as_viewed, exif_orientation


def resize_for_eval(encoded: tf.Tensor, flags: Any) -> tf.Tensor:
    """Decodes, crops and resizes an image as evaluation does.

    Args:
      encoded: string scalar, the image file's bytes.
      flags: has the flags as attributes, such as the configuration of a run.

    Returns:
      float32 [height, width, 3] in [0, 255], for `infeed.for_evaluation` or `infeed.as_evaluated`.
    """
    shape = image_shape(encoded)
    return decode_and_resize(encoded, shape, preprocessing_for(flags).crop(shape), flags)


def resize_as_viewed(encoded: tf.Tensor, flags: Any) -> tf.Tensor:
    """Decodes, crops and resizes an image of a user, as `predict` and exports do.

    The image is turned by its EXIF orientation, and laid on white where it is transparent. The others are prepared as
    by `resize_for_eval`, to the bit.

    Args:
      encoded: string scalar, the image file's bytes.
      flags: has the flags as attributes, such as the configuration of a run.

    Returns:
      float32 [height, width, 3] in [0, 255], as `resize_for_eval` returns it.
    """
    shape, orientation = image_shape(encoded), exif_orientation(encoded)
    return tf.cond(
        tf.logical_or(is_png(encoded), orientation > UPRIGHT),
        lambda: resize_decoded(decode_as_viewed(encoded, shape, orientation), flags),
        lambda: decode_and_resize(encoded, shape, preprocessing_for(flags).crop(shape), flags),
    )


def resize_decoded(pixels: tf.Tensor, flags: Any) -> tf.Tensor:
    """Crops and resizes a decoded image; the result equals that of `resize_for_eval` to the bit.

    Args:
      pixels: uint8 [any height, any width, 3], from `decode_image`.
      flags: as for `resize_for_eval`.

    Returns:
      float32 [height, width, 3] in [0, 255], as `resize_for_eval` returns it.
    """
    preprocessing = preprocessing_for(flags)
    window = preprocessing.crop(tf.shape(pixels))
    return preprocessing.resize(apply_crop(pixels, window.crop), window)


def decode_and_resize(encoded: tf.Tensor, shape: tf.Tensor, window: Any, flags: Any) -> tf.Tensor:
    """Decodes the pixels of a window and resizes them.

    Args:
      encoded: string scalar, the image file's bytes.
      shape: int32 [3], the image's shape, from `image_shape`.
      window: as the `crop` of the preprocessing returns it.
      flags: has the flags as attributes, such as the configuration of a run.

    Returns:
      float32 [height, width, 3] in [0, 255].
    """
    preprocessing = preprocessing_for(flags)
    if flags.draft_decode:
        return draft.decode_and_resize(preprocessing, encoded, shape, window, flags.height, flags.width)
    return preprocessing.resize(decode_crop(encoded, shape, window.crop), window)
