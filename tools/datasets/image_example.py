"""Makes `tf.train.Example` messages of images, in ImageNet's layout; `data.tf_example` reads them."""

import os
from typing import Any, NamedTuple, Sequence

from compat import tf
from data.tf_example import DOCUMENTED_FIELDS

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
    """The Example of an image file's bytes, in ImageNet's layout.

    The format is 'JPEG', 'PNG' or 'GIF'. Labels start at 1; 0 is the background. `text` is the name of the class;
    height and width are in pixels. `synset` is WordNet's identifier of the class, such as 'n01440764', if it has one.
    """

    def feature_of(*values: Any) -> tf.train.Feature:
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    feature = {
        DOCUMENTED_FIELDS.image: feature_of(encoded),
        'image/format': feature_of(image_format.encode()),
        DOCUMENTED_FIELDS.label: feature_of(label),
        'image/class/text': feature_of(os.fsencode(text)),
        'image/height': feature_of(height),
        'image/width': feature_of(width),
        'image/colorspace': feature_of(b'RGB'),
        'image/channels': feature_of(3),
        'image/filename': feature_of(os.fsencode(filename)),
    }
    if synset:
        feature['image/class/synset'] = feature_of(synset.encode())
    if boxes:
        feature['image/object/class/label'] = feature_of(*[label] * len(boxes))
        for corner, values in zip(Box._fields, zip(*boxes)):
            feature[f'image/object/bbox/{corner}'] = feature_of(*map(float, values))
    return tf.train.Example(features=tf.train.Features(feature=feature))


def format_of(encoded: bytes) -> str:
    """The format of a decodable image, for `make_example`."""
    return next((name for start, name in _FORMATS.items() if encoded.startswith(start)), 'JPEG')
