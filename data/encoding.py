"""Makes `tf.train.Example` messages of images, in ImageNet's layout."""

import os
from typing import NamedTuple, Sequence

from console.tensorflow_versions import tf

# The first bytes of images that are not JPEG, whatever their file name.
_FORMATS = {b'\x89PNG': 'PNG', b'GIF8': 'GIF'}


class Box(NamedTuple):
    """A bounding box, in fractions of the image's width and height: 0 <= min < max <= 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def make_example(
    encoded: bytes,
    image_format: str,
    label: int,
    text: str,
    height: int,
    width: int,
    filename: str,
    synset: str = '',
    boxes: Sequence[Box] = (),
) -> tf.train.Example:
    """Builds the Example of an image, in ImageNet's layout.

    Args:
      encoded: the image file's bytes.
      image_format: 'JPEG', 'PNG' or 'GIF'.
      label: the class, from 1 on; 0 is the background.
      text: the name of the class.
      height: height of the image, in pixels.
      width: width of the image, in pixels.
      filename: the name of the image file.
      synset: WordNet's identifier of the class, such as 'n01440764'; '' if it has none.
      boxes: the bounding boxes of objects of the class.
    """

    def of_bytes(*values: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def of_ints(*values: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def of_floats(*values: float) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    feature = {
        'image/encoded': of_bytes(encoded),
        'image/format': of_bytes(image_format.encode()),
        'image/class/label': of_ints(label),
        'image/class/text': of_bytes(os.fsencode(text)),
        'image/height': of_ints(height),
        'image/width': of_ints(width),
        'image/colorspace': of_bytes(b'RGB'),
        'image/channels': of_ints(3),
        'image/filename': of_bytes(os.fsencode(filename)),
    }
    if synset:
        feature['image/class/synset'] = of_bytes(synset.encode())
    if boxes:
        feature['image/object/class/label'] = of_ints(*[label] * len(boxes))
        for corner, values in zip(Box._fields, zip(*boxes)):
            feature[f'image/object/bbox/{corner}'] = of_floats(*values)
    return tf.train.Example(features=tf.train.Features(feature=feature))


def format_of(encoded: bytes) -> str:
    """The format of a decodable image, for `make_example`."""
    return next((name for start, name in _FORMATS.items() if encoded.startswith(start)), 'JPEG')
