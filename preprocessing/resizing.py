"""Decodes, crops and resizes encoded images."""

from typing import Any

from compat import tf
from preprocessing.decoding import apply_crop, decode_crop, image_shape
from preprocessing.preprocessings import preprocessing_for


def resize_for_eval(encoded: tf.Tensor, flags: Any) -> tf.Tensor:
    """Decodes, crops and resizes an encoded image as evaluation does: float32 [height, width, 3] in [0, 255].

    `flags` has the flags as attributes, such as the configuration of a run.
    """
    shape = image_shape(encoded)
    return decode_and_resize(encoded, shape, preprocessing_for(flags).crop(shape), flags)


def resize_decoded(pixels: tf.Tensor, flags: Any) -> tf.Tensor:
    """Crops and resizes decoded pixels, uint8 [any height, any width, 3], to the bits of `resize_for_eval`."""
    preprocessing = preprocessing_for(flags)
    window = preprocessing.crop(tf.shape(pixels))
    return preprocessing.resize(apply_crop(pixels, window.crop), window)


def decode_and_resize(encoded: tf.Tensor, shape: tf.Tensor, window: Any, flags: Any) -> tf.Tensor:
    """Decodes the pixels of a window and resizes them: float32 [height, width, 3] in [0, 255]."""
    preprocessing = preprocessing_for(flags)
    return preprocessing.resize(decode_crop(encoded, shape, window.crop), window)
