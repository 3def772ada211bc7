"""The order of training records for a seed."""

import functools
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np
import pytest

from compat import tf
from data import order
from data.record_counts import FileRecords
from data.records import DataError, Record
from tests.support.tiers import further

COUNTS = [7, 3, 0, 11, 5, 2, 9, 4, 6, 8, 1]
RECORDS = sum(COUNTS)
SEED, BATCH = 5, 8
ALONE = order.Share(BATCH)


class Taken(NamedTuple):
    """Records by their positions in the data set, int [records], and the epochs of their keys."""

    numbers: np.ndarray
    epochs: np.ndarray


def _files(counts: Sequence[int]) -> List[order.File]:
    return order.files_of([str(file) for file in range(len(counts))], [FileRecords(0, count) for count in counts])


def _reader(counts: Sequence[int]) -> order.Reader:
    """Reads FILE:POSITION of each record in a file."""

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        count = tf.gather(tf.constant(counts, tf.int64), tf.strings.to_number(path, tf.int64))
        # Not a map: each file of each lane and epoch would take another call of its function.
        return tf.data.Dataset.from_tensor_slices(Record(tf.strings.join([path, tf.as_string(tf.range(count))], ':')))

    return read


def ordered(
    step: int = 0,
    share: order.Share = ALONE,
    seed: int = SEED,
    counts: Sequence[int] = COUNTS,
    group_buffer: int = 1024,
    record_buffer: int = 1000,
    reader: Optional[order.Reader] = None,
) -> tf.data.Dataset:
    begin = tf.constant(step, tf.int64)
    reader = reader or _reader(counts)
    return order.ordered(_files(counts), reader, seed, begin, share, group_buffer, record_buffer)


def take(batches: int, step: int = 0, share: order.Share = ALONE, **others: Any) -> Taken:
    """The records of some batches, in order."""
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = ordered(step, share, **others).batch(batches * share.batch // share.hosts)
        records, _, _, keys = session.run(tf.data.make_one_shot_iterator(dataset).get_next())
    firsts = [0, *np.cumsum(others.get('counts', COUNTS))]
    numbers = [firsts[int(file)] + int(place) for file, place in (record.decode().split(':') for record in records)]
    # The key holds the position among all records of the data set.
    np.testing.assert_array_equal(keys[:, 1], numbers)
    return Taken(np.array(numbers), keys[:, 0] - others.get('seed', SEED) * 2**31)


@pytest.fixture(scope='module')
def whole() -> Taken:
    """Three epochs: 21 batches of 8 are 3 times 56 records."""
    return take(3 * RECORDS // BATCH)


def test_each_epoch_has_each_record_once_and_another_order(whole: Taken) -> None:
    epochs = whole.numbers.reshape([3, RECORDS])
    for epoch in epochs:
        assert sorted(epoch) == [*range(RECORDS)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    np.testing.assert_array_equal(whole.epochs, np.repeat([0, 1, 2], RECORDS))


def test_epoch__may_end_within_a_batch() -> None:
    # 56 records in batches of 24, the whole of several epochs; and a data set smaller than a batch.
    for counts, batch, batches in ((COUNTS, 24, 7), ([2, 1], 8, 3)):
        taken = take(batches, share=order.Share(batch), counts=counts)
        records = sum(counts)
        for epoch in range(batches * batch // records):
            own = slice(epoch * records, (epoch + 1) * records)
            assert sorted(taken.numbers[own]) == [*range(records)]
            assert set(taken.epochs[own]) == {epoch}


def test_order__stays_the_same_in_every_version(whole: Taken) -> None:
    # Recorded from this program: a run that resumes with a later version must continue this order.
    assert whole.numbers[:16].tolist() == [23, 52, 0, 50, 39, 18, 27, 30, 47, 5, 1, 10, 41, 32, 24, 44]
    assert whole.numbers[RECORDS : RECORDS + 8].tolist() == [31, 49, 18, 20, 7, 42, 28, 30]


def test_batches__are_the_same_for_any_number_of_hosts(whole: Taken) -> None:
    shares = [take(14, share=order.Share(BATCH, host, 4)) for host in range(4)]
    together = np.concatenate([share.numbers.reshape([14, BATCH // 4]) for share in shares], axis=1)
    np.testing.assert_array_equal(together.reshape(-1), whole.numbers[: 2 * RECORDS])


@pytest.mark.parametrize('counts', [[RECORDS], [0, 50, 0, 6]])
def test_batches__are_the_same_for_any_division_into_files(counts: List[int], whole: Taken) -> None:
    np.testing.assert_array_equal(take(14, counts=counts).numbers, whole.numbers[: 2 * RECORDS])


def last_of(hosts: int) -> order.Share:
    return order.Share(BATCH, hosts - 1, hosts)


@functools.lru_cache(maxsize=None)
def from_the_beginning(hosts: int) -> Taken:
    return take(44 if hosts > 1 else 16, share=last_of(hosts))


@pytest.mark.parametrize(('step', 'hosts'), [further(1, 1), (11, 1), further(20, 2), (39, 2)])
def test_order__begins_at_any_step(step: int, hosts: int) -> None:
    resumed, own = take(5, step, last_of(hosts)), slice(step * BATCH // hosts, (step + 5) * BATCH // hosts)
    for found, expected in zip(resumed, from_the_beginning(hosts)):
        np.testing.assert_array_equal(found, expected[own])


def test_order__is_that_of_the_runs_seed_not_of_the_graphs(whole: Taken) -> None:
    assert take(7, seed=6).numbers.tolist() != whole.numbers[:RECORDS].tolist()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(99)
        following = tf.data.make_one_shot_iterator(ordered().batch(RECORDS)).get_next()
        numbers = session.run(following.key)[:, 1]
    np.testing.assert_array_equal(numbers, whole.numbers[:RECORDS])


@pytest.mark.parametrize('step', [0, 3])
def test_order__of_a_file_with_fewer_records_than_counted_is_an_error(step: int) -> None:
    fewer = [*COUNTS[:-1], COUNTS[-1] - 1]
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = ordered(step, reader=_reader(fewer)).batch(RECORDS)
        following = tf.data.make_one_shot_iterator(dataset).get_next()
        message = rf'\[{len(COUNTS) - 1}\] \[{order.FEWER_RECORDS}\]'
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(following)


def test_order__of_files_without_records_is_an_error() -> None:
    for counts, named in (([0], '0'), ([0, 0], '0 and the other files')):
        with pytest.raises(DataError, match=f'^{named}: no records.$'):
            take(1, counts=counts)


def unshuffled(records: int, batch: int, lanes: int, batches: int) -> List[int]:
    """The order by hand: each epoch is cut into a part per lane, as long as the lane has positions in the epoch."""
    lane_of = np.tile(np.repeat(np.arange(lanes), batch // lanes), batches)
    found = np.zeros(batches * batch, int)
    for first in range(0, len(lane_of), records):
        lanes_of_epoch = lane_of[first : first + records]
        # The records of an epoch fill the positions of the first lane in order, then those of the next lane.
        found[first + np.argsort(lanes_of_epoch, kind='stable')] = np.arange(len(lanes_of_epoch))
    return found.tolist()


@pytest.mark.parametrize(('batch', 'lanes'), [further(24, 8), (34, 2)])
def test_buffers_of_size_0__keep_the_order_of_the_records_in_lanes(batch: int, lanes: int) -> None:
    # The batches are whole epochs: 28 of 34 records are 17.
    batches = RECORDS // 2
    taken = take(batches, share=order.Share(batch), group_buffer=0, record_buffer=0)
    assert taken.numbers.tolist() == unshuffled(RECORDS, batch, lanes, batches)


@pytest.mark.parametrize(
    ('batch', 'records', 'hosts', 'lanes'),
    [
        *((1024, 1281167, 1, 64), (1024, 1281167, 64, 64), (16384, 1281167, 256, 256), (3072, 1281167, 3, 48)),
        *((96, 1281167, 1, 32), (96, 1281167, 3, 48), (30, 9, 1, 10), (32, 1438, 1, 16), (32, 2047, 1, 16)),
        *((32, 2048, 1, 32), (64, 2048, 4, 32), (8, 2, 1, 8), (7, 10**6, 1, 7), (67, 10**6, 1, 1)),
        (134, 10**6, 2, 2),
    ],
)
def test_lanes__divide_the_batch_and_are_divided_by_hosts(batch: int, records: int, hosts: int, lanes: int) -> None:
    assert order.lanes_for(batch, hosts, records) == lanes


def test_group_buffer__shuffles_groups_within_its_size() -> None:
    # 56 records are 16 groups of 3 or 4. With one lane, an epoch is in the order of its groups.
    bounds = [number * RECORDS // 16 for number in range(17)]
    share = order.Share(67)
    firsts = set()
    for epoch in take(15, share=share, group_buffer=4, record_buffer=0).numbers[: 17 * RECORDS].reshape([-1, RECORDS]):
        groups = [bounds.index(number) for number in epoch if number in bounds]
        for begin in range(0, 16, 4):
            assert sorted(groups[begin : begin + 4]) == [*range(begin, begin + 4)]
        np.testing.assert_array_equal(epoch, np.concatenate([np.arange(*bounds[g : g + 2]) for g in groups]))
        firsts.add(groups[0])
    assert firsts == {0, 1, 2, 3}


def test_record_buffer__shuffles_each_window_differently() -> None:
    # One lane, 40 records without shuffled groups: 4 windows of 10.
    share = order.Share(67)
    epochs = take(10, share=share, counts=[40], group_buffer=0, record_buffer=10).numbers.reshape([-1, 10])
    for index, window in enumerate(epochs):
        assert sorted(window) == [*range(index % 4 * 10, index % 4 * 10 + 10)]
    assert len({tuple(window % 10) for window in epochs}) == len(epochs)


def test_record_buffer__is_divided_among_lanes_and_rounded_up() -> None:
    # Two lanes of 12 records each, and a buffer of 3: windows of 2.
    lanes = take(12, share=order.Share(2), counts=[24], group_buffer=0, record_buffer=3).numbers.reshape([12, 2]).T
    windows = lanes.reshape([2, 6, 2])
    assert np.sort(windows).tolist() == np.arange(24).reshape([2, 6, 2]).tolist() != windows.tolist()


@pytest.mark.parametrize(('records', 'groups'), [(7, 7), (56, 16), (543, 16), (544, 17), (5000, 128)])
def test_groups__have_at_least_32_records_if_there_are_many(records: int, groups: int) -> None:
    with tf.Session() as session:
        begins, ends = session.run(order._group_order(SEED, tf.constant(0, tf.int64), records, 0))
    assert len(begins) == groups
    assert [*begins, records] == [0, *ends]


def test_record_buffer__positions_in_a_window_are_uniform() -> None:
    # A chi-squared test of uniform positions, at a level of 1 in 10,000.
    share = order.Share(67)
    windows = take(44, share=share, counts=[110], group_buffer=0, record_buffer=11).numbers.reshape([-1, 11]) % 11
    counts = np.zeros([11, 11])
    for window in windows:
        counts[np.arange(11), window] += 1
    expected = len(windows) / 11
    # The quantile for 100 degrees of freedom.
    assert ((counts - expected) ** 2 / expected).sum() < 161.3


def _records_read(share: order.Share, batches: int, step: int = 0, counts: Sequence[int] = COUNTS) -> List[str]:
    """FILE:POSITION of every record that is read for some batches, including unused records."""
    read: List[str] = []

    def note(record: bytes) -> bytes:
        read.append(record.decode())
        return record

    def counting(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        def noted(record: Record) -> Record:
            return Record(tf.ensure_shape(tf.py_func(note, [record.serialized], tf.string), []))

        return _reader(counts)(path, size).map(noted)

    with tf.Graph().as_default(), tf.Session() as session:
        dataset = ordered(step, share, counts=counts, group_buffer=0, record_buffer=0, reader=counting)
        dataset = dataset.batch(batches * share.batch // share.hosts)
        session.run(tf.data.make_one_shot_iterator(dataset).get_next())
    return read


def test_order__skips_other_hosts_records_except_before_a_group() -> None:
    # Unshuffled, the second of two hosts reads the end of an epoch: the lanes of its half of each batch of 16 supply 24
    # of 56 records.
    read = _records_read(order.Share(16, 1, 2), 1, counts=[30, 26])
    # While the batch is made, the reader may begin the next epoch.
    assert {record.split(':')[0] for record in read[:16]} == {'1'}
    # Its lanes begin at 32, 35, 38 …; the records before these in the file are read and discarded.
    assert '1:0' in read


def test_order__does_not_read_the_files_before_its_step() -> None:
    # A lane of 67 positions: 56 records are less than a batch, and the second file has 6 of the 56.
    read = _records_read(order.Share(67), 1, step=5, counts=[50, 6])
    # 335 records are 5 epochs and 55 records: of the sixth epoch, only the last record is left.
    assert read[:7] == [f'1:{place}' for place in range(6)] + ['0:0']
