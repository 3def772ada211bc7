"""TFRecord files: counting, and checks before a run."""

import functools
import os
import pathlib
import subprocess
from typing import Any, List

import pytest

from console.tensorflow_versions import tf
from data import records, remote, tfrecord, writing
from tests.data.written_records import written
from tests.support.photos import Photo, photo_example
from tests.support.records import framed


def test_records_are_counted(tmp_path: pathlib.Path, photos: List[Photo]) -> None:
    paths = written(tmp_path, records.TRAIN, [3, 0, 1000])
    writing.write_shards(str(tmp_path), 'photos', [functools.partial(photo_example, photo) for photo in photos], 1)
    photos_path = records.shard_path(str(tmp_path), 'photos', 0, 1)
    assert tfrecord.count_records([*paths, photos_path]) == [3, 0, 1000, len(photos)]
    # A new file with the same name is counted again.
    assert tfrecord.count_records(written(tmp_path, records.TRAIN, [4, 0, 1000])) == [4, 0, 1000]


def test_counting_ends_where_a_file_is_damaged(tmp_path: pathlib.Path) -> None:
    whole, cut_short, damaged = written(tmp_path, records.TRAIN, [6, 6, 6])
    content = pathlib.Path(whole).read_bytes()
    pathlib.Path(cut_short).write_bytes(content[:-3])
    # A length that points beyond the end.
    pathlib.Path(damaged).write_bytes(b'\xff' * 12 + content[12:])
    assert tfrecord.count_records([whole, cut_short, damaged]) == [6, 6, 1]


@pytest.mark.parametrize('bytes_after', [1, 7, 8, 11])
def test_truncated_length__is_refused(bytes_after: int, tmp_path: pathlib.Path) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    size = os.path.getsize(path)
    with open(path, 'ab') as file:
        file.write(bytes(bytes_after))
    # TensorFlow reads three records, and takes the other bytes for the end.
    assert len([*tf.io.tf_record_iterator(path)]) == 3
    message = f'^{path}, record 3: .*length of a record is truncated at byte {size}'
    for check in (tfrecord.count_records, tfrecord.check_not_empty):
        with pytest.raises(records.DataError, match=message):
            check([path])
    with pytest.raises(tf.errors.DataLossError, match=f'truncated at byte {size}'):
        [*tfrecord.serialized_in(path)]
    with open(path, 'ab') as file:
        file.write(bytes(12 - bytes_after))
    assert tfrecord.count_records([path]) == [4]


@pytest.mark.parametrize(('length', 'is_refused'), [(2**31 - 1, False), (2**31, True), (2**63, True)])
def test_length__has_31_bits(length: int, is_refused: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'train-00000-of-00001'
    path.write_bytes(framed(b'', length))
    if is_refused:
        with pytest.raises(records.DataError, match=f'record 0: .* the record claims a length of {length:,} bytes'):
            tfrecord._check_lengths([str(path)])
    else:
        # The record is only truncated, which TensorFlow reports.
        tfrecord._check_lengths([str(path)])


def test_count_records__of_a_missing_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(records.DataError, match=f'{tmp_path}/none: cannot be read'):
        tfrecord.count_records([f'{tmp_path}/none'])


def test_a_split_needs_a_record_in_some_file(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [0, 0, 1])
    tfrecord.check_not_empty(paths)
    with pytest.raises(records.DataError, match=r'train-00000-of-00003 and the other files: no records'):
        tfrecord.check_not_empty(paths[:2])


def test_there_are_more_records_than_may_be_skipped(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [2, 0, 1])
    tfrecord.check_not_empty(paths, skipped=2)
    message = (
        r'train-00000-of-00003 and the other files: 3 records, and --max_bad_records=3 allows all of them to be skipped'
    )
    with pytest.raises(records.DataError, match=message):
        tfrecord.check_not_empty(paths, skipped=3)


def test_check_not_empty__names_a_compressed_file(tmp_path: pathlib.Path) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    compressed = str(tmp_path / 'compressed')
    with tf.io.TFRecordWriter(compressed, options='GZIP') as writer:
        for serialized in tf.io.tf_record_iterator(path):
            writer.write(serialized)
    with pytest.raises(records.DataError, match=r'compressed: is compressed with gzip.*: gunzip < FILE > NEW_FILE'):
        tfrecord.check_not_empty([compressed])
    subprocess.run(f'gunzip < {compressed} > {compressed}.records', shell=True, check=True)
    assert tfrecord.count_records([f'{compressed}.records']) == [3]


def test_check_not_empty__names_a_file_of_another_format(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'train-00000-of-00001'
    path.write_text('this is a text, and not a record file')
    with pytest.raises(records.DataError, match=r'train-00000-of-00001: not a record file, or damaged'):
        tfrecord.check_not_empty([str(path)])
    path.unlink()
    path.mkdir()
    with pytest.raises(records.DataError, match=r'train-00000-of-00001: cannot be read: .*[Dd]irectory'):
        tfrecord.check_not_empty([str(path)])
    path.rmdir()
    os.mkfifo(str(path))
    with pytest.raises(
        records.DataError,
        match=r'train-00000-of-00001: cannot be read: .* is a pipe or a device',
    ):
        tfrecord.check_not_empty([str(path)])


def test_check_not_empty__reads_no_more_records_than_it_needs(tmp_path: pathlib.Path) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    content = bytearray(pathlib.Path(path).read_bytes())
    content[-1] ^= 1  # The checksum of the last record.
    pathlib.Path(path).write_bytes(content)
    tfrecord.check_not_empty([path])
    tfrecord.check_not_empty([path], skipped=1)
    with pytest.raises(records.DataError, match='damaged near its beginning'):
        tfrecord.check_not_empty([path], skipped=2)


@pytest.mark.parametrize('difference', [0, 1, -1])
def test_read_to_the_end__fails_if_a_file_has_another_size(difference: int, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / 'file')
    with tf.io.TFRecordWriter(path) as writer:
        for record in (b'one', b'', b'three'):
            writer.write(record)
    size = tf.constant(os.path.getsize(path) + difference)
    dataset = tfrecord.read_to_the_end(tf.data.TFRecordDataset(path), tf.constant(path), size)
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        assert [session.run(following) for _ in range(3)] == [b'one', b'', b'three']
        expected = tf.errors.InvalidArgumentError if difference else tf.errors.OutOfRangeError
        with pytest.raises(expected, match='could not be read beyond byte' if difference else ''):
            session.run(following)


@pytest.mark.parametrize('hides_refusals', [True, False])
def test_reader__checks_the_size_if_the_store_hides_refusals(
    hides_refusals: bool, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    monkeypatch.setattr(remote, 'hides_refusals', lambda folder: hides_refusals and folder == str(tmp_path))
    # A size of one more empty record than the file has.
    dataset = tfrecord.reader(str(tmp_path), 1000)(tf.constant(path), tf.constant(4 * 16))
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        assert [session.run(following) for _ in range(3)] == [b''] * 3
        with pytest.raises(tf.errors.InvalidArgumentError if hides_refusals else tf.errors.OutOfRangeError):
            session.run(following)
