"""The order of training records for a seed."""

from typing import List, Tuple

import numpy as np
import pytest

from console.tensorflow_versions import tf
from data import order
from data.records import DataError
from tests.support.graphs import type_in_1_15

COUNTS = [7, 3, 0, 11, 5, 2, 9, 4, 6, 8, 1]
RECORDS = sum(COUNTS)
FILES = order.files_of([str(file) for file in range(len(COUNTS))], [0] * len(COUNTS), COUNTS)


def _read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    count = tf.gather(tf.constant(COUNTS, tf.int64), tf.strings.to_number(path, tf.int64))
    return tf.data.Dataset.range(count).map(lambda record: tf.strings.join([path, tf.as_string(record)], ':'))


def _five_records(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.range(5).map(lambda record: tf.strings.join([path, tf.as_string(record)], ':'))


def take(
    count: int,
    start: int = 0,
    seed: int = 5,
    file_buffer: int = 1024,
    record_buffer: int = 4,
    files_ahead: int = 8,
    files: List[order.File] = FILES,
    read: order.Reader = _read,
) -> Tuple[List[str], List[Tuple[int, int]]]:
    """Some records, as FILE:POSITION, and their keys."""
    with tf.Graph().as_default(), tf.Session() as session:
        begin = tf.constant(start, tf.int64)
        dataset = order.ordered(files, read, seed, begin, file_buffer, record_buffer, files_ahead)
        records, keys = session.run(tf.data.make_one_shot_iterator(dataset.batch(count)).get_next())
    return [record.decode() for record in records], [(key[0], key[1]) for key in keys]


@pytest.fixture(scope='module')
def epochs() -> Tuple[List[str], List[Tuple[int, int]]]:
    """Three epochs."""
    return take(3 * RECORDS)


def test_each_epoch_has_each_record_once_and_another_order(epochs: Tuple[List[str], List[Tuple[int, int]]]) -> None:
    orders = np.array(epochs[0]).reshape([3, RECORDS])
    every = sorted(f'{file}:{place}' for file, count in enumerate(COUNTS) for place in range(count))
    for each in orders:
        assert sorted(each) == every
    assert len({tuple(each) for each in orders}) == 3


def test_order__stays_the_same_in_every_version(epochs: Tuple[List[str], List[Tuple[int, int]]]) -> None:
    # Recorded from this program: a run that resumes with a later version continues it.
    assert ' '.join(epochs[0][:14]) == '3:0 4:0 0:0 1:0 5:0 6:1 9:0 0:1 3:1 5:1 1:1 9:1 4:1 0:2'
    assert ' '.join(epochs[0][RECORDS : RECORDS + 6]) == '7:0 1:0 6:0 5:0 4:0 5:1'


def test_key__of_seed_epoch_and_position(epochs: Tuple[List[str], List[Tuple[int, int]]]) -> None:
    for index, (record, key) in enumerate(zip(*epochs)):
        file, place = map(int, record.split(':'))
        assert key == (5 * 2**31 + index // RECORDS, sum(COUNTS[:file]) + place)


@pytest.mark.parametrize('start', [1, 20, RECORDS - 1, RECORDS, RECORDS + 31, 2 * RECORDS - 3])
def test_order__begins_at_any_position(start: int, epochs: Tuple[List[str], List[Tuple[int, int]]]) -> None:
    records, keys = take(RECORDS, start)
    assert records == epochs[0][start : start + RECORDS]
    assert keys == epochs[1][start : start + RECORDS]


@pytest.mark.parametrize('files_ahead', [1, 2, 16, 64])
def test_order__is_independent_of_parallel_reads(
    files_ahead: int, epochs: Tuple[List[str], List[Tuple[int, int]]]
) -> None:
    assert take(3 * RECORDS, files_ahead=files_ahead) == epochs


@pytest.mark.parametrize(('files_ahead', 'groups_ahead'), [(1, 1), (8, 1), (24, 2), (64, 7)])
def test_order__opens_the_next_groups_ahead(files_ahead: int, groups_ahead: int) -> None:
    order.ordered(FILES, _read, 5, tf.constant(0, tf.int64), 1024, 4, files_ahead)
    operations = tf.get_default_graph().get_operations()
    (interleave,) = [each for each in operations if type_in_1_15(each.type) == 'ParallelInterleaveDataset']
    assert tf.get_static_value(interleave.inputs[-1]) == groups_ahead


def test_order__does_not_read_the_groups_before_its_position() -> None:
    def read_second_group(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        is_second = tf.strings.to_number(path, tf.int32) >= order.GROUP_FILES
        with tf.control_dependencies([tf.Assert(is_second, ['read before the position:', path])]):
            return _read(tf.identity(path), size)

    begin = sum(COUNTS[: order.GROUP_FILES])
    records, _ = take(RECORDS - begin, begin, file_buffer=1, read=read_second_group)
    assert sorted({record.split(':')[0] for record in records}) == ['10', '8', '9']


def test_order__of_files_without_records_is_an_error() -> None:
    for files, named in (([FILES[2]], '2 of this host'), ([FILES[2]] * 2, '2 and the other files of this host')):
        with pytest.raises(DataError, match=f'^{named}: no records.$'):
            take(1, files=files)


def test_another_seed_gives_another_order(epochs: Tuple[List[str], List[Tuple[int, int]]]) -> None:
    assert take(RECORDS, seed=6)[0] != epochs[0][:RECORDS]


def in_turn(files: List[int]) -> List[str]:
    """The records of files that are read in turn, one record of each."""
    return [f'{file}:{place}' for place in range(max(COUNTS)) for file in files if place < COUNTS[file]]


@pytest.mark.parametrize('start', [0, 9, RECORDS + 5])
def test_buffers_of_size_0__keep_the_order_of_files_and_records(start: int) -> None:
    # Groups of eight files, then the others; the same in each epoch.
    epoch = [*in_turn([*range(8)]), *in_turn([*range(8, len(COUNTS))])]
    found, keys = take(RECORDS, start, file_buffer=0, record_buffer=0)
    assert found == (3 * epoch)[start : start + RECORDS]
    assert len({*keys}) == RECORDS


def test_buffer_of_size_0__switches_one_shuffle_off() -> None:
    files_only, _ = take(RECORDS, record_buffer=0)
    records_only, _ = take(RECORDS, file_buffer=0)
    # Files in another order, and each of them in its own order.
    assert files_only != [*in_turn([*range(8)]), *in_turn([*range(8, len(COUNTS))])]
    for file, count in enumerate(COUNTS):
        assert [record for record in files_only if record.startswith(f'{file}:')] == [
            f'{file}:{place}' for place in range(count)
        ]
    # The first group has the first eight files.
    assert sorted(records_only[: sum(COUNTS[:8])]) == sorted(in_turn([*range(8)]))
    assert records_only[: sum(COUNTS[:8])] != in_turn([*range(8)])


def test_order__ignores_the_seed_of_the_graph(epochs: Tuple[List[str], List[Tuple[int, int]]]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(99)
        dataset = order.ordered(FILES, _read, 5, tf.constant(0, tf.int64), 1024, 4, 8)
        following = tf.data.make_one_shot_iterator(dataset).get_next()
        assert [session.run(following)[0].decode() for _ in range(RECORDS)] == epochs[0][:RECORDS]


def _files(records: List[str]) -> List[int]:
    return [int(record.split(':')[0]) for record in records]


def test_buffers__shuffle_within_their_size() -> None:
    # Without shuffling: groups of 8 files, in order.
    records, _ = take(RECORDS, file_buffer=1, record_buffer=1)
    first_group = sum(COUNTS[:8])
    assert sorted(set(_files(records[:first_group]))) == [file for file in range(8) if COUNTS[file]]
    for file, count in enumerate(COUNTS):
        assert [r for r in records if r.startswith(f'{file}:')] == [f'{file}:{place}' for place in range(count)]
    # In some epoch, each file of the buffer comes first.
    first = set(_files(take(40 * RECORDS, record_buffer=1)[0])[::RECORDS])
    assert first == {file for file, count in enumerate(COUNTS) if count}


def test_order__shuffles_each_group_and_each_epoch_differently() -> None:
    # Two groups of files alike, in order: without a difference between groups, their records come in the same order.
    alike = order.files_of([str(file) for file in range(16)], [0] * 16, [5] * 16)
    _, keys = take(3 * 80, file_buffer=1, record_buffer=40, files=alike, read=_five_records)
    groups = np.array(keys)[:, 1].reshape([6, 40]) - np.tile([[0], [40]], [3, 1])
    assert (np.sort(groups) == np.arange(40)).all()
    assert len({tuple(group) for group in groups}) == 6


def test_key__holds_the_position_in_the_whole_data_set() -> None:
    share = FILES[1::3]
    records, keys = take(sum(file.records for file in share), files=share)
    assert {record.split(':')[0] for record in records} == {'1', '4', '7', '10'}
    for record, (_, position) in zip(records, keys):
        file, place = map(int, record.split(':'))
        assert position == sum(COUNTS[:file]) + place


def test_buffer__positions_are_uniform() -> None:
    # One file in a buffer of its size: a chi-squared test of uniform positions, at a level of 1 in 10,000.
    one = [FILES[3]]
    counts = np.zeros([11, 11], int)
    records, _ = take(11 * 400, record_buffer=16, files=one)
    for index, record in enumerate(records):
        counts[index % 11, int(record.split(':')[1])] += 1
    statistic = ((counts - 400 / 11) ** 2 / (400 / 11)).sum()
    # For 100 degrees of freedom.
    assert statistic < 161.3
