"""The order of training records that follows from a seed: the same on every machine, and begun at any place of it.

In each epoch the files are shuffled and taken in groups. The records of a group's files are interleaved, and shuffled
in a buffer. A group depends on nothing but (seed, epoch, its number), so that what lies before a place is passed over
in whole groups without being read, and only the group of that place is read, not decoded, from its beginning.
"""

import itertools
from typing import Callable, List, NamedTuple, Sequence

import tensorflow as tf

# Files whose records are interleaved: enough to mix what is alike in a file, and to wait for none.
GROUP_FILES = 8
# What the numbers of an epoch are drawn for, beside its records, which are 0 and up.
_FILES, _BUFFERS = -1, -2
# Epochs that a seed has: more than there will be.
_EPOCHS = 1 << 31

Reader = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]


class File(NamedTuple):
    """A file that is read.

    Attributes:
      path: of the file.
      size: its bytes, or 0, as `records.sizes_to_reach` returns them.
      records: how many it holds.
      first: the place of its first record among all records of the data set.
    """

    path: str
    size: int
    records: int
    first: int


def files_of(paths: Sequence[str], sizes: Sequence[int], counts: Sequence[int]) -> List[File]:
    """The files of a data set, in order."""
    firsts = [0, *itertools.accumulate(counts)]
    return [File(*columns) for columns in zip(paths, sizes, counts, firsts)]


def key_of(seed: int, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """What a stateless random operation takes: int64 [2].

    Args:
      seed: of the run, below 2 ** 31.
      epoch: int64 scalar.
      number: int64 scalar, of a record in the data set.
    """
    return tf.stack([seed * _EPOCHS + epoch, number])


def ordered(
    files: Sequence[File],
    read: Reader,
    seed: int,
    start: tf.Tensor,
    file_buffer: int,
    record_buffer: int,
    files_ahead: int,
) -> tf.data.Dataset:
    """The records of endless epochs, in the order that follows from a seed.

    Args:
      files: that are read.
      read: what reads a file, given its path and its size.
      seed: of the run.
      start: int64 scalar, the records that have been taken already.
      file_buffer: files that are shuffled with each other.
      record_buffer: records in the buffer that shuffles those of a group.
      files_ahead: files that are read at a time; those beyond a group are of the groups that come next.

    Returns:
      A data set of (record, key): what `read` reads, and the key of `key_of`, for what is random about it.
    """
    groups = -(-len(files) // GROUP_FILES)
    paths = tf.constant([file.path for file in files])
    sizes, counts, firsts = (tf.constant(column, tf.int64) for column in [*zip(*files)][1:])
    first_epoch, first_record = start // tf.reduce_sum(counts), start % tf.reduce_sum(counts)

    def groups_of(epoch: tf.Tensor) -> tf.data.Dataset:
        key = key_of(seed, epoch, tf.constant(_FILES, tf.int64))
        draw = tf.random.stateless_uniform([len(files)], key, dtype=tf.float64)
        # Within a buffer by chance, and the buffers in order.
        order = tf.argsort(tf.cast(tf.range(len(files)) // file_buffer, tf.float64) + draw)
        padding = [[0, groups * GROUP_FILES - len(files)]]
        members = tf.reshape(tf.pad(order, padding, constant_values=-1), [groups, GROUP_FILES])
        totals = tf.reduce_sum(tf.reshape(tf.pad(tf.gather(counts, order), padding), [groups, GROUP_FILES]), axis=1)
        before = tf.where(tf.equal(epoch, first_epoch), first_record, tf.zeros_like(first_record))
        skipped = tf.clip_by_value(before - tf.cumsum(totals, exclusive=True), 0, totals)
        dataset = tf.data.Dataset.from_tensor_slices((tf.range(groups, dtype=tf.int64), members, skipped, totals))
        dataset = dataset.filter(lambda group, members, skipped, total: skipped < total)
        return dataset.map(lambda group, members, skipped, total: (epoch, group, members, skipped))

    def records_of(epoch: tf.Tensor, group: tf.Tensor, members: tf.Tensor, skipped: tf.Tensor) -> tf.data.Dataset:
        members = tf.boolean_mask(members, members >= 0)
        dataset = tf.data.Dataset.from_tensor_slices(tuple(tf.gather(x, members) for x in (paths, sizes, firsts)))
        dataset = dataset.apply(_interleave(numbered, GROUP_FILES, 0))
        # The buffer draws from this seed alone: not from one of the graph as well, which this forgets in here.
        tf.compat.v1.set_random_seed(None)
        buffer_seed = tf.random.stateless_uniform(
            [], key_of(seed, epoch, _BUFFERS - group), minval=0, maxval=tf.int64.max, dtype=tf.int64
        )
        shuffled = dataset.shuffle(record_buffer, buffer_seed, reshuffle_each_iteration=False)
        return shuffled.skip(skipped).map(lambda number, record: (record, key_of(seed, epoch, number)))

    def numbered(path: tf.Tensor, size: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        return read(path, size).enumerate(first)

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    groups_ahead = max(1, files_ahead // GROUP_FILES - 1)
    return epochs.flat_map(groups_of).apply(_interleave(records_of, 1, groups_ahead))


def _interleave(read: Callable[..., tf.data.Dataset], at_a_time: int, ahead: int) -> Callable:
    # Not Dataset.interleave: in TensorFlow 1.15 its threads outlive it, and crash a session that closes.
    return tf.data.experimental.parallel_interleave(
        read, cycle_length=at_a_time, sloppy=False, prefetch_input_elements=ahead
    )
