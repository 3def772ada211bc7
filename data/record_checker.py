"""Describes why the input pipeline cannot use a record."""

import contextlib
import itertools
import math
import warnings
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional

import numpy as np

from compat import tf
from compat.messages import shown
from data import tf_example, tfrecord_files
from data.records import DataError
from data.tf_example import DOCUMENTED_FIELDS, Fields
from preprocessing.decoding import MAX_PIXELS, decode_image

# The problem of a record that Python's protocol buffers can parse, but TensorFlow cannot.
UNREADABLE = 'damaged: its fields cannot be read.'
_NAN_BOXES = 'bounding boxes with NaN: image/object/bbox/* must be fractions of the image.'
# The most characters of the keys in a message.
_LONGEST_LIST = 180
# Records between two progress messages of a search.
_PROGRESS_EVERY = 100


class BadRecord(NamedTuple):
    """A record that cannot be used: its file, its position in it (from 0), and the reason."""

    path: str
    position: int
    problem: str

    def __str__(self) -> str:
        return f'{self.path}, record {self.position}: {self.problem}'


def parse_example(serialized: bytes) -> Optional[tf.train.Example]:
    """Parses a serialized Example; None if it is not one."""
    example = tf.train.Example()
    try:
        with warnings.catch_warnings():
            # Protocol buffers only warn about trailing bytes that cannot be parsed.
            warnings.simplefilter('ignore', RuntimeWarning)
            parsed = example.ParseFromString(serialized)
    except Exception:  # protobuf's DecodeError; its module depends on the implementation.
        return None
    return example if parsed == len(serialized) else None


def field_problem(
    example: Optional[tf.train.Example], num_classes: int, fields: Fields = DOCUMENTED_FIELDS
) -> Optional[str]:
    """The problem of a record's image field or label; None if there is none. The image itself is not decoded."""
    if example is None:
        return 'not a tf.train.Example.'
    problem = _key_problem(example, fields)
    if problem:
        return problem
    label = example.features.feature[fields.label].int64_list.value[0] + fields.label_offset
    return label_problem(label, num_classes, fields.label_offset)


def check_keys(path: str, fields: Fields) -> None:
    """Raises DataError if the first record of a file can be parsed, but has no image or label under their keys."""
    example = parse_example(next(tfrecord_files.serialized_in(path), b''))
    problem = _key_problem(example, fields) if example and example.features.feature else None
    if problem:
        raise DataError(str(BadRecord(path, 0, problem)))


def _key_problem(example: tf.train.Example, fields: Fields) -> Optional[str]:
    """The reason why a record lacks an image or a label; None if it has both."""
    # Looked up without adding an empty feature for a key that is missing.
    feature = example.features.feature
    image, label = (feature[key] if key in feature else tf.train.Feature() for key in fields[:2])
    encoded, labels = image.bytes_list.value, label.int64_list.value
    if len(encoded) == len(labels) == 1 and encoded[0]:
        return None  # The usual case, without the cost of the message.
    keys = f'The record has the keys {shown(", ".join(sorted(feature)), _LONGEST_LIST)}.'
    if len(encoded) != 1:
        return f'{_no_image(fields)} {keys} --image_key names another.'
    if not encoded[0]:
        return _no_image(fields)
    return f'no label: {fields.label} must hold one whole number. {keys} --label_key names another.'


def _no_image(fields: Fields) -> str:
    return f'no image: {fields.image} must hold the bytes of one.'


def box_problem(example: tf.train.Example) -> Optional[str]:
    """The problem of a record's bounding boxes, for training with them; None if there is none."""
    feature = example.features.feature
    corners = [feature[f'image/object/bbox/{c}'] for c in tf_example.CORNERS]
    if any(corner.WhichOneof('kind') not in (None, 'float_list') for corner in corners):
        return 'bounding boxes of a wrong type: image/object/bbox/* must be floats.'
    if len({len(corner.float_list.value) for corner in corners}) > 1:
        return 'bounding boxes with missing corners: image/object/bbox/* differ in length.'
    if any(math.isnan(value) for corner in corners for value in corner.float_list.value):
        return _NAN_BOXES
    return None


def label_problem(label: int, num_classes: int, offset: int = 0) -> Optional[str]:
    """The problem of a label after the addition of `Fields.label_offset`; None if there is none."""
    if 0 <= label < num_classes:
        return None
    allowed = f'is not in 0 to {num_classes - 1} (--num_classes={num_classes}).'
    if offset:
        return f'label {label} ({label - offset} in the record, and --label_offset={offset}) {allowed}'
    return f'label {label} {allowed} Labels that begin at another number need --label_offset=N, which is added to each.'


class RecordChecker:
    """Describes why the input pipeline cannot use a record.

    Labels must be below `num_classes`. `with_boxes` also checks bounding boxes, for training with --use_annotated_bbox.
    """

    def __init__(self, num_classes: int, with_boxes: bool = True, fields: Fields = DOCUMENTED_FIELDS):
        self.num_classes, self.fields = num_classes, fields
        self._with_boxes = with_boxes
        with tf.Graph().as_default() as graph:
            self._serialized = self._encoded = tf.placeholder(tf.string, [])
            self._parsed = tf_example.parse(self._serialized, with_boxes, fields)
            self._decoded = tf.shape(self.decode(self._encoded))
        self._session = tf.Session(graph=graph)

    @staticmethod
    def decode(encoded: tf.Tensor) -> tf.Tensor:
        """Decodes an image, a string scalar, with TensorFlow operations."""
        return decode_image(encoded)

    def close(self) -> None:
        """Closes the TensorFlow session."""
        self._session.close()

    def records(self, path: str) -> Iterator[Any]:
        """Yields the records of a file, in order, for `problem`."""
        return tfrecord_files.serialized_in(path)

    def problem(self, record: Any) -> Optional[str]:
        """The problem of a serialized record; None if there is none."""
        try:
            # TensorFlow decides: it can parse some damaged records that Python cannot, and vice versa.
            parsed = self._session.run(self._parsed, {self._serialized: record})
        except tf.errors.InvalidArgumentError:
            example = parse_example(record)
            problem = field_problem(example, self.num_classes, self.fields)
            if example and not problem and self._with_boxes:
                problem = box_problem(example)
            return problem or UNREADABLE
        if not parsed.encoded:
            return _no_image(self.fields)
        if np.isnan(parsed.bbox).any():
            return _NAN_BOXES
        offset = self.fields.label_offset
        return label_problem(int(parsed.label), self.num_classes, offset) or self.image_problem(parsed.encoded)

    def image_problem(self, encoded: bytes) -> Optional[str]:
        """The problem of an encoded image; None if there is none."""
        try:
            self._session.run(self._decoded, {self._encoded: encoded})
        except tf.errors.InvalidArgumentError:
            return (
                f'the image ({len(encoded):,} bytes) cannot be decoded: damaged, of more than '
                f'{MAX_PIXELS // 10**6} million pixels, or neither JPEG, PNG nor GIF.'
            )
        return None

    def search(self, paths: Iterable[str], progress: Callable[[str], None]) -> Iterator[BadRecord]:
        """Yields the bad records of files, in order; calls `progress` with a message at intervals."""
        checked = 0
        for path in paths:
            position = -1
            try:
                for position, record in enumerate(self.records(path)):
                    problem = self.problem(record)
                    if problem:
                        yield BadRecord(path, position, problem)
                    checked += 1
                    if checked % _PROGRESS_EVERY == 0:
                        progress(f'{checked:,} records checked, now in {path}')
            except tf.errors.DataLossError as error:
                yield BadRecord(path, position + 1, f'the file is damaged or truncated from here on: {error.message}.')

    def problem_at(self, path: str, position: int) -> BadRecord:
        """Describes the record at a position where the input pipeline failed."""
        with contextlib.suppress(tf.errors.OpError):
            for record in itertools.islice(self.records(path), position, None):
                return BadRecord(path, position, self.problem(record) or 'could not be used when it was read.')
        return BadRecord(path, position, 'can no longer be read.')
