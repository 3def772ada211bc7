"""Orders the training records by a seed: the same global batches for any number of hosts, cores and files.

An epoch is a permutation of all records. The records are divided into groups of neighbours, whatever files they are in;
the permutation takes the groups in a random order, so that reading stays sequential. It is cut into lanes. Each lane
supplies the same positions of every global batch, and shuffles its records within windows. A host reads the lanes of
its own positions, and nothing else.

The order depends on (seed, epoch), on the number of records and on the size of the global batch, but not on the number
of hosts or files. The place of any step in it is computed. A run that resumes rereads only the earlier records of the
current window of each lane, and skips the records before a group's beginning in its file.
"""

import itertools
from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

import numpy as np

from compat import tf
from compat.graph_checks import require
from data.record_counts import FileRecords
from data.records import DataError

# The fewest and the most groups of an epoch, and, between these limits, the records of a group. A group may begin
# anywhere in a file; the records before it are read and discarded: with 1,024 files, at most a fifth of those needed.
_FEWEST_GROUPS, _MOST_GROUPS, _GROUP_RECORDS = 16, 128, 32
# The fewest and the most lanes, if the batch can be divided so, and, between these limits, the records of an epoch in a
# lane. A host reads its lanes at the same time.
_FEWEST_LANES, _MOST_LANES, _LANE_RECORDS = 16, 64, 64
# The numbers in the keys that shuffle an epoch's groups (-1) and its windows (-2 and below). Records count from 0.
_GROUP_ORDER, _WINDOWS = -1, -2
# The number of epochs per seed in the keys: more than any run has.
_EPOCHS = 1 << 31

# The input pipeline's message about a file that ends before a record that was counted.
FEWER_RECORDS = 'has fewer records than were counted'

Reader = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]


class File(NamedTuple):
    """A file: its path, its size in bytes, its number of records, and the position of its first record among all."""

    path: str
    size: int
    records: int
    first: int


def files_of(paths: Sequence[str], contents: Sequence[FileRecords]) -> List[File]:
    """The files of a data set, in order, from their paths, sizes and numbers of records."""
    firsts = [0, *itertools.accumulate(content.records for content in contents)]
    return [File(path, *content, first) for path, content, first in zip(paths, contents, firsts)]


def key_of(seed: int, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The seed of a stateless random operation for a record in an epoch, int64 [2].

    The run's seed is below 2 ** 31; epoch and number, the position of the record in the data set, are int64 scalars.
    """
    return tf.stack([seed * _EPOCHS + epoch, number])


class Share(NamedTuple):
    """The part of every global batch that one host supplies: consecutive positions, host after host."""

    batch: int
    host: int = 0
    hosts: int = 1


def lanes_for(batch: int, hosts: int, records: int) -> int:
    """The number of lanes for a global batch and a data set. It divides the batch, and is a multiple of the hosts.

    It is the same for every number of hosts that divides it. Powers of two do, up to a limit that follows from the
    batch, from 64 and, below 4,096 records, from their number. Other numbers of hosts have other lanes, and another
    order of the records.
    """
    most = min(_MOST_LANES, max(_FEWEST_LANES, records // _LANE_RECORDS))
    lanes = _divisor(batch, most)
    return lanes if lanes % hosts == 0 else hosts * _divisor(batch // hosts, most // hosts)


def _divisor(number: int, most: int) -> int:
    """The divisor of a number, at most `most`, that has the most factors of two; the largest if there are several."""
    divisors = [each for each in range(1, max(1, most) + 1) if number % each == 0]
    return max(divisors, key=lambda each: (each & -each, each))


class _Columns(NamedTuple):
    """The files as tensors, each [files]: string paths, and int64 sizes, numbers of records, and first positions."""

    paths: tf.Tensor
    sizes: tf.Tensor
    counts: tf.Tensor
    firsts: tf.Tensor


class _Lanes(NamedTuple):
    """The lanes of endless epochs: their number, a lane's positions in a batch, and an epoch's records."""

    lanes: int
    width: int
    records: int

    def before(self, position: tf.Tensor) -> tf.Tensor:
        """The number of records that each lane supplies before a position among those of all batches, int64 [lanes]."""
        batch = self.lanes * self.width
        first = tf.range(self.lanes, dtype=tf.int64) * self.width
        return position // batch * self.width + tf.clip_by_value(position % batch - first, 0, self.width)


def ordered(
    files: Sequence[File],
    read: Reader,
    seed: int,
    step: tf.Tensor,
    share: Share,
    group_buffer: int,
    record_buffer: int,
    steps: int = 1,
) -> tf.data.Dataset:
    """A host's records of endless global batches, in the order for a seed.

    Each epoch has every record once: the first N positions of all batches are the first epoch of N records, the next N
    the second one.

    Args:
      files: the files of the data set, of all hosts.
      read: a function from a path and a size to the records of a file, each a `Record`.
      seed: the run's seed.
      step: int64 scalar, the number of global batches to skip.
      share: the part of each batch to supply.
      group_buffer: the number of groups that are shuffled with each other; 0 keeps their order.
      record_buffer: records in the windows of all lanes together; 0 keeps the order of the records in a group.
      steps: the number of steps whose records come together: first the records of the first lane for all these steps,
        then those of the next lane. They begin at a multiple of `steps`, which may be before `step`.

    Returns:
      A data set of the records, each with the result of `key_of` for its random operations. At run time,
      `tf.errors.InvalidArgumentError` is raised if a file has fewer records than were counted: the records after it
      would otherwise come too early.

    Raises:
      DataError: the files have no records.
    """
    columns = _Columns(
        tf.constant([file.path for file in files]),
        *(tf.constant(column, tf.int64) for column in [*zip(*files)][1:]),
    )
    total = sum(file.records for file in files)
    if not total:
        raise DataError(f'{files[0].path}{" and the other files" if len(files) > 1 else ""}: no records.')
    count = lanes_for(share.batch, share.hosts, total)
    lanes = _Lanes(count, share.batch // count, total)
    # The records of a lane that are shuffled together.
    window = -(-record_buffer // count)
    first_step = step - step % steps

    def records_of_lane(lane: tf.Tensor) -> tf.data.Dataset:
        first_epoch = (first_step * share.batch + lane * lanes.width) // total
        epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
        return epochs.flat_map(lambda epoch: records_of_epoch(lane, epoch))

    def records_of_epoch(lane: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
        before = lanes.before(epoch * total)
        counts = lanes.before((epoch + 1) * total) - before
        begin = tf.cumsum(counts, exclusive=True)[lane]
        skipped = tf.maximum(first_step * lanes.width - before[lane], 0)
        # The records that are skipped in the first window are read, because they determine its order.
        passed = skipped // window * window if window else skipped
        order = _group_order(seed, epoch, total, group_buffer)
        spans = _spans(columns, order, begin + passed, begin + counts[lane])
        dataset = tf.data.Dataset.from_tensor_slices(spans).flat_map(numbered)
        if window > 1:
            dataset = _shuffled(dataset, window, seed, epoch, begin + passed).skip(skipped - passed)
        return dataset.map(lambda number, record: record._replace(key=key_of(seed, epoch, number)))

    def numbered(
        path: tf.Tensor, size: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, first: tf.Tensor
    ) -> tf.data.Dataset:
        records = read(path, size)
        return records.skip(skip).concatenate(_missing(path, records)).take(take).enumerate(first)

    own = count // share.hosts
    # Not Dataset.interleave: its threads in TensorFlow 1.15 outlive it, and crash when the session is closed.
    interleave = tf.data.experimental.parallel_interleave(
        records_of_lane, own, steps * lanes.width, False, buffer_output_elements=lanes.width, prefetch_input_elements=0
    )
    return tf.data.Dataset.range(share.host * own, (share.host + 1) * own).apply(interleave)


def _missing(path: tf.Tensor, records: tf.data.Dataset) -> tf.data.Dataset:
    """A data set whose only element fails. It stands for a missing record, and has the types of a file's records."""

    def fail(path: tf.Tensor) -> Any:
        with tf.control_dependencies([require(tf.constant(False), [path, FEWER_RECORDS])]):
            return tf.nest.map_structure(lambda dtype: tf.zeros([], dtype), tf.data.get_output_types(records))

    return tf.data.Dataset.from_tensors(path).map(fail)


def _group_order(seed: int, epoch: tf.Tensor, total: int, group_buffer: int) -> List[tf.Tensor]:
    """The epoch's groups in order: the first record of each, and the record after its last; two int64 [groups]."""
    groups = min(total, _MOST_GROUPS, max(_FEWEST_GROUPS, total // _GROUP_RECORDS))
    bounds = np.arange(groups + 1, dtype=np.int64) * total // groups
    order = tf.range(groups)
    if group_buffer:
        key = key_of(seed, epoch, tf.constant(_GROUP_ORDER, tf.int64))
        draw = tf.random.stateless_uniform([groups], key, dtype=tf.float64)
        # Random within each buffer of groups; the buffers stay in order.
        order = tf.argsort(tf.cast(order // group_buffer, tf.float64) + draw)
    return [tf.gather(each, order) for each in (bounds[:-1], bounds[1:])]


def _spans(columns: _Columns, order: List[tf.Tensor], begin: tf.Tensor, end: tf.Tensor) -> Tuple[tf.Tensor, ...]:
    """The spans of files that hold the records of an epoch between two places in its order, both int64 scalars.

    The order is from `_group_order`. Returns five tensors [spans]: path, size, records to skip, records to read, and
    the position of the first record read.
    """
    lows, highs = order
    places = tf.cumsum(highs - lows, exclusive=True)
    # The positions of the records of each group between the two places.
    lows, highs = tf.maximum(lows, lows + begin - places), tf.minimum(highs, lows + end - places)
    # The positions of these records in each file, [groups, files]. Groups outside the two places have none.
    lows = tf.maximum(lows[:, tf.newaxis], columns.firsts)
    highs = tf.minimum(highs[:, tf.newaxis], columns.firsts + columns.counts)
    found = tf.where(lows < highs)
    lows, highs = tf.gather_nd(lows, found), tf.gather_nd(highs, found)
    paths, sizes, firsts = (tf.gather(each, found[:, 1]) for each in (columns.paths, columns.sizes, columns.firsts))
    return paths, sizes, lows - firsts, highs - lows, lows


def _shuffled(dataset: tf.data.Dataset, window: int, seed: int, epoch: tf.Tensor, begin: tf.Tensor) -> tf.data.Dataset:
    """Shuffles the elements of each window; `begin` is the place of the first one in the epoch's order."""

    def shuffled(place: tf.Tensor, elements: List[tf.data.Dataset]) -> tf.data.Dataset:
        # Removes the graph's seed, which the buffer would combine with its own.
        tf.set_random_seed(None)
        key = key_of(seed, epoch, _WINDOWS - begin - place * window)
        buffer_seed = tf.random.stateless_uniform([], key, minval=0, maxval=tf.int64.max, dtype=tf.int64)
        return tf.data.Dataset.zip(elements).shuffle(window, buffer_seed, reshuffle_each_iteration=False)

    return dataset.window(window).enumerate().flat_map(shuffled)
