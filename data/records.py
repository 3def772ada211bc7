"""Record files in ImageNet's layout: `train-00000-of-01024 …` and `validation-00000-of-00128 …`.

Each is a TFRecord file of `tf.train.Example`s, one per image.
"""

import os
import re
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import tensorflow as tf
from absl import app

TRAIN = 'train'
VALIDATION = 'validation'

# Records looked at before a search for bad ones says how far it is.
_PROGRESS_EVERY = 10000


class DataError(app.UsageError, ValueError):
    """Data that a run cannot use."""


class ParsedRecord(NamedTuple):
    """What training and evaluation take from a record.

    Attributes:
      encoded: string scalar, the image file's bytes.
      label: int32 scalar; 0 is the background.
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax, clipped to [0, 1].
    """

    encoded: tf.Tensor
    label: tf.Tensor
    bbox: tf.Tensor


class BadRecord(NamedTuple):
    """A record that cannot be used: its file, its position there (from 0), and why."""

    path: str
    position: int
    problem: str

    def __str__(self) -> str:
        return f'{self.path}, record {self.position}: {self.problem}'


def parse(serialized: tf.Tensor) -> ParsedRecord:
    """Parses a serialized `tf.train.Example`, a string scalar, as TensorFlow operations.

    When they run, a record that is no Example, or lacks its image or label, raises
    tf.errors.InvalidArgumentError.
    """
    corners = ['ymin', 'xmin', 'ymax', 'xmax']
    features = {
        'image/encoded': tf.io.FixedLenFeature([], tf.string),
        'image/class/label': tf.io.FixedLenFeature([], tf.int64),
    }
    features.update({f'image/object/bbox/{c}': tf.io.VarLenFeature(tf.float32) for c in corners})
    parsed = tf.io.parse_single_example(serialized, features)
    bbox = tf.stack([parsed[f'image/object/bbox/{c}'].values for c in corners], axis=-1)
    return ParsedRecord(
        parsed['image/encoded'],
        tf.cast(parsed['image/class/label'], tf.int32),
        tf.clip_by_value(bbox, 0.0, 1.0)[tf.newaxis],
    )


def make_example(
    encoded: bytes, image_format: str, label: int, text: str, height: int, width: int, filename: str
) -> tf.train.Example:
    """An image as an Example in ImageNet's layout, without bounding boxes.

    Args:
      encoded: the image file's bytes.
      image_format: 'JPEG' or 'PNG'.
      label: the class, from 1 on; 0 is the background.
      text: the name of the class.
      height: height of the image, in pixels.
      width: width of the image, in pixels.
      filename: where the image comes from.
    """

    def of_bytes(*values: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def of_ints(*values: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    feature = {
        'image/encoded': of_bytes(encoded),
        'image/format': of_bytes(image_format.encode()),
        'image/class/label': of_ints(label),
        'image/class/text': of_bytes(text.encode()),
        'image/height': of_ints(height),
        'image/width': of_ints(width),
        'image/colorspace': of_bytes(b'RGB'),
        'image/channels': of_ints(3),
        'image/filename': of_bytes(filename.encode()),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


def shard_path(data_dir: str, split: str, shard: int, shards: int) -> str:
    """The path of a record file, such as `DIR/train-00000-of-01024`."""
    return os.path.join(data_dir, f'{split}-{shard:05d}-of-{shards:05d}')


def write_shards(data_dir: str, split: str, examples: Sequence[Callable[[], tf.train.Example]], shards: int) -> None:
    """Writes examples to `shards` record files, in order and in shares that differ by one at the most.

    Args:
      data_dir: the folder, which must exist.
      split: `TRAIN` or `VALIDATION`.
      examples: functions that make the examples, so that not all are in memory at once.
      shards: the number of files.
    """
    for shard in range(shards):
        share = examples[len(examples) * shard // shards : len(examples) * (shard + 1) // shards]
        with tf.io.TFRecordWriter(shard_path(data_dir, split, shard, shards)) as writer:
            for make in share:
                writer.write(make().SerializeToString())


def find_shards(data_dir: str, split: str) -> List[str]:
    """The record files of a split, in order.

    Raises:
      DataError: the folder does not exist, has none, or lacks some of those that the names count.
    """
    try:
        present = tf.io.gfile.isdir(data_dir)
        paths = sorted(tf.io.gfile.glob(os.path.join(data_dir, f'{split}-*'))) if present else []
    except tf.errors.OpError as error:
        raise DataError(f'--data_dir={data_dir}: cannot be listed: {error.message}')
    if not present:
        raise DataError(f'--data_dir={data_dir}: no such folder. It must hold the record files of a data set.')
    if not paths:
        example = os.path.basename(shard_path(data_dir, split, 0, 1024 if split == TRAIN else 128))
        others = sorted({re.sub(r'-\d{5}-of-\d{5}$', '-*', name) for name in tf.io.gfile.listdir(data_dir)})
        raise DataError(
            f'--data_dir={data_dir}: no {split} files, which are named like {example}; '
            + (f'it holds {", ".join(others[:5])}.' if others else 'it is empty.')
        )
    _check_complete(data_dir, split, paths)
    return paths


def _check_complete(data_dir: str, split: str, paths: Sequence[str]) -> None:
    """Refuses a set of shards with gaps: half of a data set trains as silently as the whole."""
    counts = {int(match[1]) for match in (re.search(r'-of-(\d+)$', path) for path in paths) if match}
    if len(counts) > 1:
        kinds = ' and '.join(f'-of-{count:05d}' for count in sorted(counts))
        raise DataError(f'--data_dir={data_dir}: the {split} files are of several data sets, {kinds}. Keep one.')
    for count in counts:
        expected = [os.path.basename(shard_path(data_dir, split, shard, count)) for shard in range(count)]
        missing = sorted(set(expected) - {os.path.basename(path) for path in paths})
        if missing:
            raise DataError(
                f'--data_dir={data_dir}: {len(missing)} of {count} {split} files are missing, from {missing[0]} on.'
            )


class RecordChecker:
    """Tells what is wrong with a record: the same demands as the input pipeline's, in words.

    Args:
      num_classes: labels must be below it.
      decode: TensorFlow operations from an encoded image (a string scalar) to its pixels.
    """

    def __init__(self, num_classes: int, decode: Callable[[tf.Tensor], tf.Tensor]):
        self._num_classes = num_classes
        with tf.Graph().as_default() as graph:
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._decoded = tf.shape(decode(self._encoded))
        self._session = tf.compat.v1.Session(graph=graph)

    def problem(self, serialized: bytes) -> Optional[str]:
        """Why a serialized record cannot be used; None if it can."""
        example = tf.train.Example()
        try:
            example.ParseFromString(serialized)
        except Exception:  # protobuf's DecodeError, whose module differs between its implementations
            return 'not a tf.train.Example.'
        feature = example.features.feature
        encoded = feature['image/encoded'].bytes_list.value
        if len(encoded) != 1 or not encoded[0]:
            return 'no image: image/encoded must hold the bytes of one.'
        label = feature['image/class/label'].int64_list.value
        if len(label) != 1:
            return 'no label: image/class/label must hold one whole number.'
        if not 0 <= label[0] < self._num_classes:
            return f'label {label[0]} is not in 0 to {self._num_classes - 1} (--num_classes={self._num_classes}).'
        corners = {len(feature[f'image/object/bbox/{c}'].float_list.value) for c in ('ymin', 'xmin', 'ymax', 'xmax')}
        if len(corners) > 1:
            return 'bounding boxes with corners missing: image/object/bbox/* differ in length.'
        try:
            self._session.run(self._decoded, {self._encoded: encoded[0]})
        except tf.errors.InvalidArgumentError:
            return f'the image ({len(encoded[0])} bytes) cannot be decoded: broken, or neither JPEG, PNG nor GIF.'
        return None

    def search(self, paths: Iterable[str], progress: Callable[[str], None]) -> Iterator[BadRecord]:
        """The bad records of some files, one after the other; `progress` is told now and then how far it is."""
        looked_at = 0
        for path in paths:
            position = -1
            try:
                for position, serialized in enumerate(tf.compat.v1.io.tf_record_iterator(path)):
                    problem = self.problem(serialized)
                    if problem:
                        yield BadRecord(path, position, problem)
                    looked_at += 1
                    if looked_at % _PROGRESS_EVERY == 0:
                        progress(f'{looked_at:,} records looked at, now in {path}')
            except tf.errors.DataLossError as error:
                yield BadRecord(path, position + 1, f'the file is damaged or cut short from here on: {error.message}.')

    def problem_at(self, path: str, position: int) -> BadRecord:
        """The bad record at a known place."""
        for index, serialized in enumerate(tf.compat.v1.io.tf_record_iterator(path)):
            if index == position:
                return BadRecord(path, position, self.problem(serialized) or 'could not be used when it was read.')
        return BadRecord(path, position, 'is not there any more.')
