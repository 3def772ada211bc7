"""What is wrong with records: the same demands as the input pipeline's, in words."""

import contextlib
import functools
import math
import warnings
from typing import Callable, Iterable, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from data import tf_example, tfrecord
from preprocessing.decoding import MAX_PIXELS

# What is wrong with a record that Python's protocol buffers can read, and TensorFlow's parser cannot.
UNREADABLE = 'damaged: its fields cannot be read.'
_NO_IMAGE = 'no image: image/encoded must hold the bytes of one.'
_NO_NUMBERS = 'bounding boxes that are no numbers: image/object/bbox/* must be fractions of the image.'
# Records looked at before a search for bad ones says how far it is.
_PROGRESS_EVERY = 10000


class BadRecord(NamedTuple):
    """A record that cannot be used: its file, its position there (from 0), and why."""

    path: str
    position: int
    problem: str

    def __str__(self) -> str:
        return f'{self.path}, record {self.position}: {self.problem}'


def parse_example(serialized: bytes) -> Optional[tf.train.Example]:
    """The Example that was serialized, or None if it is none."""
    example = tf.train.Example()
    try:
        with warnings.catch_warnings():
            # Of what comes after a place where it stops, it only warns.
            warnings.simplefilter('ignore', RuntimeWarning)
            parsed = example.ParseFromString(serialized)
    except Exception:  # protobuf's DecodeError, whose module differs between its implementations
        return None
    return example if parsed == len(serialized) else None


def field_problem(example: Optional[tf.train.Example], num_classes: int) -> Optional[str]:
    """Why a record cannot be used, going by its image and label; None if they are in order, whatever the image is like.

    Args:
      example: what `parse_example` returned.
      num_classes: labels must be below it.
    """
    if example is None:
        return 'not a tf.train.Example.'
    feature = example.features.feature
    encoded = feature['image/encoded'].bytes_list.value
    if len(encoded) != 1 or not encoded[0]:
        return _NO_IMAGE
    label = feature['image/class/label'].int64_list.value
    if len(label) != 1:
        return 'no label: image/class/label must hold one whole number.'
    return label_problem(label[0], num_classes)


def box_problem(example: tf.train.Example) -> Optional[str]:
    """Why a record cannot be used in training with its bounding boxes; None if it can, or has none."""
    feature = example.features.feature
    corners = [feature[f'image/object/bbox/{c}'] for c in tf_example.CORNERS]
    if any(corner.WhichOneof('kind') not in (None, 'float_list') for corner in corners):
        return 'bounding boxes that are no fractions: image/object/bbox/* must be floats.'
    if len({len(corner.float_list.value) for corner in corners}) > 1:
        return 'bounding boxes with corners missing: image/object/bbox/* differ in length.'
    if any(math.isnan(value) for corner in corners for value in corner.float_list.value):
        return _NO_NUMBERS
    return None


def label_problem(label: int, num_classes: int) -> Optional[str]:
    """Why a label cannot be used; None if it can."""
    if 0 <= label < num_classes:
        return None
    return f'label {label} is not in 0 to {num_classes - 1} (--num_classes={num_classes}).'


class RecordChecker:
    """Tells what is wrong with a record: the same demands as the input pipeline's, in words.

    Args:
      num_classes: labels must be below it.
      decode: TensorFlow operations from an encoded image (a string scalar) to its pixels.
      with_boxes: whether its bounding boxes are read, too, as in training with --use_annotated_bbox.
    """

    def __init__(self, num_classes: int, decode: Callable[[tf.Tensor], tf.Tensor], with_boxes: bool = True):
        self.num_classes = num_classes
        self._with_boxes = with_boxes
        with tf.Graph().as_default() as graph:
            self._serialized = self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._parsed = tf_example.parse(self._serialized, with_boxes)
            self._decoded = tf.shape(decode(self._encoded))
        self._session = tf.compat.v1.Session(graph=graph)

    def close(self) -> None:
        """Lets go of TensorFlow's resources."""
        self._session.close()

    def problem(self, serialized: bytes) -> Optional[str]:
        """Why a serialized record cannot be used; None if it can."""
        try:
            # Of what is damaged, TensorFlow understands more than Python at times, and less at others.
            parsed = self._session.run(self._parsed, {self._serialized: serialized})
        except tf.errors.InvalidArgumentError:
            example = parse_example(serialized)
            problem = field_problem(example, self.num_classes)
            if example and not problem and self._with_boxes:
                problem = box_problem(example)
            return problem or UNREADABLE
        if not parsed.encoded:
            return _NO_IMAGE
        if np.isnan(parsed.bbox).any():
            return _NO_NUMBERS
        return label_problem(int(parsed.label), self.num_classes) or self.image_problem(parsed.encoded)

    def image_problem(self, encoded: bytes) -> Optional[str]:
        """Why an encoded image cannot be used; None if it can."""
        try:
            self._session.run(self._decoded, {self._encoded: encoded})
        except tf.errors.InvalidArgumentError:
            return (
                f'the image ({len(encoded)} bytes) cannot be decoded: broken, of more than '
                f'{MAX_PIXELS // 10**6} million pixels, or neither JPEG, PNG nor GIF.'
            )
        return None

    def problems(self, path: str) -> Iterator[Callable[[], Optional[str]]]:
        """For each record of a file, in order, what tells its problem."""
        for serialized in tfrecord.serialized_in(path):
            yield functools.partial(self.problem, serialized)

    def search(self, paths: Iterable[str], progress: Callable[[str], None]) -> Iterator[BadRecord]:
        """The bad records of some files, one after the other; `progress` is told now and then how far it is."""
        looked_at = 0
        for path in paths:
            position = -1
            try:
                for position, tell in enumerate(self.problems(path)):
                    problem = tell()
                    if problem:
                        yield BadRecord(path, position, problem)
                    looked_at += 1
                    if looked_at % _PROGRESS_EVERY == 0:
                        progress(f'{looked_at:,} records looked at, now in {path}')
            except tf.errors.DataLossError as error:
                yield BadRecord(path, position + 1, f'the file is damaged or cut short from here on: {error.message}.')

    def problem_at(self, path: str, position: int) -> BadRecord:
        """The bad record at a place where one was met."""
        with contextlib.suppress(tf.errors.OpError):
            for index, tell in enumerate(self.problems(path)):
                if index == position:
                    return BadRecord(path, position, tell() or 'could not be used when it was read.')
        return BadRecord(path, position, 'cannot be read any more.')
