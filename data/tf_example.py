"""Images in `tf.train.Example` messages of ImageNet's layout: reads them in the graph, and makes them."""

import os
from typing import Any, NamedTuple, Sequence

from compat import tf

# The sides of a bounding box, in the order that training uses.
CORNERS = ('ymin', 'xmin', 'ymax', 'xmax')

# The beginning of TensorFlow's error for a record that is not an Example.
UNPARSABLE = 'Could not parse example input'
# TensorFlow quotes the record in that error as a Python string, and the process crashes if the record is not UTF-8.
# These bytes, put before the record, end the quotation at their zero byte; protocol buffers read an unknown field.
_QUOTATION_END = b'\x10\0'
# The first bytes of images that are not JPEG, whatever their file name.
_FORMATS = {b'\x89PNG': 'PNG', b'GIF8': 'GIF'}


class ParsedRecord(NamedTuple):
    """The parts of a record that training and evaluation use; those of a group of records, with a first dimension."""

    encoded: tf.Tensor  # String scalar, the image file's bytes.
    label: tf.Tensor  # int64 scalar, after the addition of `Fields.label_offset`; 0 is the background.
    # float32 [1, boxes, 4], each ymin, xmin, ymax, xmax, clipped to [0, 1]. For a group, there are none.
    bbox: tf.Tensor


class Fields(NamedTuple):
    """The fields of a record that are read besides its boxes."""

    image: str = 'image/encoded'  # The key of the image file's bytes.
    label: str = 'image/class/label'  # The key of the label, a whole number.
    label_offset: int = 0  # A number that is added to the label: 1 if labels begin at 0, and 0 is not the background.


DOCUMENTED_FIELDS = Fields()


class Box(NamedTuple):
    """A bounding box, in fractions of the image's width and height: 0 <= min < max <= 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def parse(serialized: tf.Tensor, with_boxes: bool = True, fields: Fields = DOCUMENTED_FIELDS) -> ParsedRecord:
    """Parses a serialized `tf.train.Example`, string scalar, or a group of them, [records], with TensorFlow operations.

    A record that is not an Example, or has no image or no label, raises `tf.errors.InvalidArgumentError` at run time.
    TensorFlow crashes on a list of floats that claims to be longer than its record. Checksums exclude such damage, so
    only a program that writes malformed records can cause it. Parsing the bounding boxes of a single record takes
    longer than everything else; without, `bbox` is empty.
    """
    assert not (with_boxes and serialized.shape.ndims), 'records have different numbers of boxes'
    features = {
        fields.image: tf.io.FixedLenFeature([], tf.string),
        fields.label: tf.io.FixedLenFeature([], tf.int64),
    }
    if with_boxes:
        features.update({f'image/object/bbox/{c}': tf.io.VarLenFeature(tf.float32) for c in CORNERS})
    parse_all = tf.io.parse_example if serialized.shape.ndims else tf.io.parse_single_example
    parsed = parse_all(tf.strings.join([_QUOTATION_END, serialized]), features)
    bbox = tf.zeros([0, 4])
    if with_boxes:
        bbox = tf.stack([parsed[f'image/object/bbox/{c}'].values for c in CORNERS], axis=-1)
    return ParsedRecord(
        parsed[fields.image],
        parsed[fields.label] + fields.label_offset,
        tf.clip_by_value(bbox, 0.0, 1.0)[tf.newaxis],
    )


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

    The format is 'JPEG', 'PNG' or 'GIF'; labels are from 1 on, 0 is the background, and `text` is the name of the
    class; height and width are in pixels. `synset` is WordNet's identifier of the class, such as 'n01440764', if it has
    one.
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
