"""Images as `tf.train.Example` messages in ImageNet's layout."""

import os
from typing import NamedTuple, Sequence

from console.tensorflow_versions import tf

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
    """The parts of a record that training and evaluation use; those of a group of records, with a first dimension.

    Attributes:
      encoded: string scalar, the image file's bytes.
      label: int64 scalar, after the addition of `Fields.label_offset`; 0 is the background.
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax, clipped to [0, 1]. For a group, there are none.
    """

    encoded: tf.Tensor
    label: tf.Tensor
    bbox: tf.Tensor


class Fields(NamedTuple):
    """The fields of a record that are read besides its boxes.

    Attributes:
      image: the key of the image file's bytes.
      label: the key of the label, a whole number.
      label_offset: a number that is added to the label: 1 if labels begin at 0, and 0 is not the background.
    """

    image: str = 'image/encoded'
    label: str = 'image/class/label'
    label_offset: int = 0


DOCUMENTED_FIELDS = Fields()


class Box(NamedTuple):
    """A bounding box, in fractions of the image's width and height: 0 <= min < max <= 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def parse(serialized: tf.Tensor, with_boxes: bool = True, fields: Fields = DOCUMENTED_FIELDS) -> ParsedRecord:
    """Parses a serialized `tf.train.Example`, or a group of them, with TensorFlow operations.

    TensorFlow crashes on a list of floats that claims to be longer than its record. Checksums exclude such damage, so
    only a program that writes malformed records can cause it.

    Args:
      serialized: a string scalar, the record; for a group, strings [records].
      with_boxes: parse the bounding boxes, which takes longer than everything else; for a single record only. If
        False, `bbox` is empty.
      fields: of the record.

    Raises:
      tf.errors.InvalidArgumentError: at run time, for a record that is not an Example, or has no image or no label.
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
