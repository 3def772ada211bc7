"""Orders the training records by a seed, in the same way on every machine, starting at any position.

In each epoch the files are shuffled and divided into groups. The records of a group's files are interleaved, and
shuffled in a buffer. A group depends only on (seed, epoch, number of the group). When a run starts at a
position, whole groups before it are therefore skipped without being read. Only the group that contains the position is
read from its beginning; its skipped records are not decoded.
"""

import itertools
from typing import Callable, List, NamedTuple, Sequence

from console.tensorflow_versions import tf
from data.records import DataError

# The number of files whose records are interleaved: enough to separate similar neighbours in a file, and to hide the
# latency of one file.
GROUP_FILES = 8
# The numbers in the keys that shuffle an epoch's files, and its buffers (-2 and below). Records have numbers from 0.
_FILES, _BUFFERS = -1, -2
# The number of epochs per seed in keys: more than any run has.
_EPOCHS = 1 << 31

Reader = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]


class File(NamedTuple):
    """A file of the data set.

    Attributes:
      path: of the file.
      size: its size from `records.expected_sizes`: in bytes, or 0.
      records: the number of its records.
      first: the position of its first record among all records of the data set.
    """

    path: str
    size: int
    records: int
    first: int


def files_of(paths: Sequence[str], sizes: Sequence[int], counts: Sequence[int]) -> List[File]:
    """The files of a data set, in order, from their paths, sizes and numbers of records."""
    firsts = [0, *itertools.accumulate(counts)]
    return [File(*columns) for columns in zip(paths, sizes, counts, firsts)]


def key_of(seed: int, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The seed of a stateless random operation for a record in an epoch, int64 [2].

    Args:
      seed: the run's seed, below 2 ** 31.
      epoch: int64 scalar.
      number: int64 scalar, the position of a record in the data set.
    """
    return tf.stack([seed * _EPOCHS + epoch, number])


class _Columns(NamedTuple):
    """The files as tensors, each [files]: string paths, and int64 sizes, numbers of records, and first positions."""

    paths: tf.Tensor
    sizes: tf.Tensor
    counts: tf.Tensor
    firsts: tf.Tensor


def ordered(
    files: Sequence[File],
    read: Reader,
    seed: int,
    start: tf.Tensor,
    file_buffer: int,
    record_buffer: int,
    files_ahead: int,
) -> tf.data.Dataset:
    """The records of endless epochs, in the order for a seed.

    Args:
      files: the files of the data set.
      read: a function from a path and a size to the records of a file.
      seed: the run's seed.
      start: int64 scalar, the number of records to skip.
      file_buffer: files that are shuffled with each other; 0 keeps their order.
      record_buffer: records in the buffer that shuffles a group; 0 keeps the order of its interleaved files.
      files_ahead: files that are read at the same time; those beyond one group belong to the next groups.

    Returns:
      A data set of (record, key): an element of `read`, and the result of `key_of` for its random operations.

    Raises:
      DataError: the files have no records.
    """
    columns = _Columns(
        tf.constant([file.path for file in files]),
        *(tf.constant(column, tf.int64) for column in [*zip(*files)][1:]),
    )
    total = sum(file.records for file in files)
    if not total:
        raise DataError(f'{files[0].path}{" and the other files" if len(files) > 1 else ""} of this host: no records.')
    first_epoch, first_record = start // total, start % total

    def groups_of(epoch: tf.Tensor) -> tf.data.Dataset:
        skipped = tf.where(tf.equal(epoch, first_epoch), first_record, tf.zeros_like(first_record))
        return _groups(columns.counts, seed, epoch, skipped, len(files), file_buffer)

    def numbered(path: tf.Tensor, size: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        return read(path, size).enumerate(first)

    def records_of(epoch: tf.Tensor, group: tf.Tensor, members: tf.Tensor, skipped: tf.Tensor) -> tf.data.Dataset:
        members = tf.boolean_mask(members, members >= 0)
        group_files = (columns.paths, columns.sizes, columns.firsts)
        dataset = tf.data.Dataset.from_tensor_slices(tuple(tf.gather(column, members) for column in group_files))
        dataset = dataset.apply(_interleave(numbered, GROUP_FILES, 0))
        if record_buffer:
            # Removes the graph's seed, which the buffer would combine with its own.
            tf.set_random_seed(None)
            buffer_seed = tf.random.stateless_uniform(
                [], key_of(seed, epoch, _BUFFERS - group), minval=0, maxval=tf.int64.max, dtype=tf.int64
            )
            dataset = dataset.shuffle(record_buffer, buffer_seed, reshuffle_each_iteration=False)
        return dataset.skip(skipped).map(lambda number, record: (record, key_of(seed, epoch, number)))

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    groups_ahead = max(1, files_ahead // GROUP_FILES - 1)
    return epochs.flat_map(groups_of).apply(_interleave(records_of, 1, groups_ahead))


def _groups(
    counts: tf.Tensor, seed: int, epoch: tf.Tensor, skipped: tf.Tensor, files: int, file_buffer: int
) -> tf.data.Dataset:
    """The groups of an epoch that have records to read, in order.

    Args:
      counts: int64 [files], the number of records in each file.
      seed: the run's seed.
      epoch: int64 scalar.
      skipped: int64 scalar, the number of records of the epoch to skip.
      files: the number of files.
      file_buffer: files that are shuffled with each other; 0 keeps their order.

    Returns:
      A data set of (epoch, number of the group, indices of its files padded with -1, number of records to skip).
    """
    groups = -(-files // GROUP_FILES)
    order = tf.range(files)
    if file_buffer:
        key = key_of(seed, epoch, tf.constant(_FILES, tf.int64))
        draw = tf.random.stateless_uniform([files], key, dtype=tf.float64)
        # Random within each buffer of files; the buffers stay in order.
        order = tf.argsort(tf.cast(order // file_buffer, tf.float64) + draw)
    padding = [[0, groups * GROUP_FILES - files]]
    members = tf.reshape(tf.pad(order, padding, constant_values=-1), [groups, GROUP_FILES])
    totals = tf.reduce_sum(tf.reshape(tf.pad(tf.gather(counts, order), padding), [groups, GROUP_FILES]), axis=1)
    skipped = tf.clip_by_value(skipped - tf.cumsum(totals, exclusive=True), 0, totals)
    dataset = tf.data.Dataset.from_tensor_slices((tf.range(groups, dtype=tf.int64), members, skipped, totals))
    dataset = dataset.filter(lambda group, members, skipped, total: skipped < total)
    return dataset.map(lambda group, members, skipped, total: (epoch, group, members, skipped))


def _interleave(read: Callable[..., tf.data.Dataset], at_a_time: int, ahead: int) -> Callable:
    # Not Dataset.interleave: its threads in TensorFlow 1.15 outlive it, and crash when the session is closed.
    return tf.data.experimental.parallel_interleave(
        read, cycle_length=at_a_time, sloppy=False, prefetch_input_elements=ahead
    )
