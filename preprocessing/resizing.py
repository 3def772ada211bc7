"""Decodes, crops and resizes encoded images."""

from typing import Any

from console.tensorflow_versions import tf
from preprocessing.decoding import apply_crop, decode_crop, image_shape
from preprocessing.preprocessings import preprocessing_for


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
    return preprocessing.resize(decode_crop(encoded, shape, window.crop), window)
