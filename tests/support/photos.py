"""Photographs as records with bounding boxes."""

from typing import List, NamedTuple

import numpy as np

from compat import tf
from tools.datasets import image_example


def encode_jpeg(pixels: np.ndarray, quality: int = 95) -> bytes:
    """Encodes uint8 pixels [height, width, 3] as a JPEG file."""
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.image.encode_jpeg(pixels, quality=quality))


class Photo(NamedTuple):
    """A photograph: uint8 pixels, their JPEG file, a label, and float32 boxes: ymin, xmin, ymax, xmax as fractions."""

    pixels: np.ndarray
    encoded: bytes
    label: int
    boxes: np.ndarray


def photo_example(photo: Photo) -> tf.train.Example:
    """Returns the record of a photograph."""
    height, width, _ = photo.pixels.shape
    example = image_example.make_example(photo.encoded, 'JPEG', photo.label, 'class', height, width, 'photo.jpg')
    for column, corner in enumerate(['ymin', 'xmin', 'ymax', 'xmax']):
        values = photo.boxes[:, column].tolist()
        example.features.feature[f'image/object/bbox/{corner}'].float_list.value.extend(values)
    return example


CORNERS = ['ymin', 'xmin', 'ymax', 'xmax']


def set_boxes(example: tf.train.Example, **corners: List[float]) -> None:
    """Replaces the coordinates of a record's boxes: the values of all boxes by corner name."""
    for corner, values in corners.items():
        example.features.feature[f'image/object/bbox/{corner}'].float_list.value[:] = values
