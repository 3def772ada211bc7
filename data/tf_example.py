"""Images in `tf.train.Example` messages of ImageNet's layout, read in the graph."""

from typing import NamedTuple

from compat import tf

# The sides of a bounding box, in the order that training uses.
CORNERS = ('ymin', 'xmin', 'ymax', 'xmax')

# The beginning of TensorFlow's error for a record that is not an Example.
UNPARSABLE = 'Could not parse example input'
# TensorFlow quotes the record in that error as a Python string, and the process crashes if the record is not UTF-8.
# These bytes, put before the record, end the quotation at their zero byte; protocol buffers see an unknown field.
_QUOTATION_END = b'\x10\0'


class ParsedRecord(NamedTuple):
    """The parts of a record for training and evaluation; for a group, each begins with a dimension of records."""

    encoded: tf.Tensor  # String scalar, the image file's bytes.
    label: tf.Tensor  # int64 scalar, after the addition of `Fields.label_offset`; 0 is the background.
    # float32 [1, boxes, 4], each ymin, xmin, ymax, xmax, clipped to [0, 1]; a group has no boxes.
    bbox: tf.Tensor


class Fields(NamedTuple):
    """The fields of a record that are read besides its boxes."""

    image: str = 'image/encoded'  # The key of the image file's bytes.
    label: str = 'image/class/label'  # The key of the label, a whole number.
    label_offset: int = 0  # A number that is added to the label: 1 if labels begin at 0, and 0 is not the background.


DOCUMENTED_FIELDS = Fields()


def parse(serialized: tf.Tensor, with_boxes: bool = True, fields: Fields = DOCUMENTED_FIELDS) -> ParsedRecord:
    """Parses a serialized `tf.train.Example`, string scalar, or a group of them, [records], with TensorFlow operations.

    A record that is not an Example, or has no image or no label, raises `tf.errors.InvalidArgumentError` at run time.
    TensorFlow crashes on a list of floats that claims to be longer than its record. Checksums exclude such damage, so
    only a program that writes malformed records can cause it. Parsing the bounding boxes of a single record takes
    longer than everything else; without `with_boxes`, `bbox` is empty.
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
