"""TFRecord files: counting, and checks before a run."""

import contextlib
import functools
import gzip
import os
import pathlib
import zlib
from typing import Any, Callable, List

import pytest

from compat import tf
from data import checks, records, remote, tfrecord, tfrecord_files
from tests.data.written_records import written
from tests.support.photos import Photo, photo_example
from tests.support.records import framed
from tools.datasets import writing


def test_records_are_counted(tmp_path: pathlib.Path, photos: List[Photo]) -> None:
    paths = written(tmp_path, records.TRAIN, [3, 0, 1000])
    writing.write_shards(str(tmp_path), 'photos', [functools.partial(photo_example, photo) for photo in photos], 1)
    photos_path = records.shard_path(str(tmp_path), 'photos', 0, 1)
    assert tfrecord_files.count_records([*paths, photos_path]) == [3, 0, 1000, len(photos)]
    # A new file with the same name is counted again.
    assert tfrecord_files.count_records(written(tmp_path, records.TRAIN, [4, 0, 1000])) == [4, 0, 1000]


def test_counting_ends_where_a_file_is_damaged(tmp_path: pathlib.Path) -> None:
    whole, cut_short, damaged = written(tmp_path, records.TRAIN, [6, 6, 6])
    content = pathlib.Path(whole).read_bytes()
    pathlib.Path(cut_short).write_bytes(content[:-3])
    # A length that points beyond the end.
    pathlib.Path(damaged).write_bytes(b'\xff' * 12 + content[12:])
    assert tfrecord_files.count_records([whole, cut_short, damaged]) == [6, 6, 1]


@pytest.mark.parametrize('bytes_after', [1, 11])
def test_truncated_length__is_refused(bytes_after: int, tmp_path: pathlib.Path) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    size = os.path.getsize(path)
    with open(path, 'ab') as file:
        file.write(bytes(bytes_after))
    # TensorFlow reads three records, and takes the other bytes for the end of the file.
    assert len([*tf.io.tf_record_iterator(path)]) == 3
    message = f'^{path}, record 3: .*length of a record is truncated at byte {size}'
    check_first: Callable[[List[str]], Any] = functools.partial(checks.check_not_empty, 'tfrecord')
    for check in (tfrecord_files.count_records, check_first):
        with pytest.raises(records.DataError, match=message):
            check([path])
    with pytest.raises(tf.errors.DataLossError, match=f'truncated at byte {size}'):
        [*tfrecord_files.serialized_in(path)]
    with open(path, 'ab') as file:
        file.write(bytes(12 - bytes_after))
    assert tfrecord_files.count_records([path]) == [4]


def test_length__of_31_bits_is_possible(tmp_path: pathlib.Path) -> None:
    # The record is only truncated, which TensorFlow reports.
    (tmp_path / 'file').write_bytes(framed(b'', 2**31 - 1))
    checks.check_lengths([f'{tmp_path}/file'])
    (tmp_path / 'file').write_bytes(framed(b'', 2**31))
    with pytest.raises(records.DataError, match=r'record 0: .* the record claims a length of 2,147,483,648 b'):
        checks.check_lengths([f'{tmp_path}/file'])


def test_check_lengths__is_of_local_files_of_moderate_size(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    paths = written(tmp_path, records.TRAIN, [3, 4])
    size = sum(map(os.path.getsize, paths))
    for most, count in ((size, 7), (size - 1, None)):
        monkeypatch.setattr(checks, '_LARGEST_CHECKED', most)
        assert checks.check_lengths(paths) == count
    # Files in a store are not checked.
    assert checks.check_lengths(['gs://bucket/train-00000-of-00001']) is None


def test_count_records__names_a_missing_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(records.DataError, match=f'{tmp_path}/none: cannot be read'):
        tfrecord_files.count_records([f'{tmp_path}/none'])


def test_there_are_more_records_than_may_be_skipped(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [0, 0, 2, 1])
    checks.check_not_empty('tfrecord', paths, skipped=2)
    with pytest.raises(records.DataError, match=r'train-00000-of-00004 and the other files: no records'):
        checks.check_not_empty('tfrecord', paths[:2])
    message = r'00000-of-00004 and the other files: 3 records, and --max_bad_records=3 allows all of them to be skipped'
    with pytest.raises(records.DataError, match=message):
        checks.check_not_empty('tfrecord', paths, skipped=3)


def compressed(path: pathlib.Path, lengths: List[int], options: str) -> str:
    """Writes a file of records of these lengths, which cannot be compressed, and returns its path."""
    with tf.io.TFRecordWriter(str(path), options=options) as writer:
        for length in lengths:
            writer.write(os.urandom(length))
    return str(path)


def all_read(paths: List[str], of: str) -> List[bytes]:
    """The records of a file among others, as the input pipeline reads them."""
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = tfrecord.reader(of, 1000, paths)(tf.constant(of), tf.constant(0))
        following = tf.data.make_one_shot_iterator(dataset).get_next()
        found = []
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                found.append(session.run(following))
    return found


def test_compressed_files__are_recognized_by_their_content(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    # Contents that are larger than this stand for contents of more than 4 GiB.
    for module in (tfrecord, tfrecord_files):
        monkeypatch.setattr(module, 'SIZE_MODULUS', 600)
    # The lengths 0x8b1f, 0x88b1f and 0x9c78 begin as gzip and zlib files do.
    lengths: List[List[int]] = [[0x8B1F], [0x88B1F], [0x9C78], [1, 2], [], [3, 0, 4], [], [5, 700]]
    kinds = ['', '', '', '', 'GZIP', 'GZIP', 'ZLIB', 'ZLIB']
    paths = [compressed(tmp_path / f'{i}', each, kind) for i, (each, kind) in enumerate(zip(lengths, kinds))]
    assert [tfrecord.compression_of(path) for path in paths] == kinds
    assert tfrecord_files.count_records(paths) == [1, 1, 1, 2, 0, 3, 0, 2]
    checks.check_not_empty('tfrecord', paths, 9)
    for path, expected in zip(paths, lengths):
        found = all_read(paths, path)
        assert [len(record) for record in found] == expected
        assert [*tfrecord_files.serialized_in(path)] == found
    # An empty file, one byte and two bytes of zlib, and a zlib stream with a dictionary, which TensorFlow cannot read.
    for content, kind in ((b'', ''), (b'\x78', ''), (b'\x78\x9c', 'ZLIB'), (b'\x78\xbb\0', '')):
        (tmp_path / 'begins').write_bytes(content)
        assert tfrecord.compression_of(f'{tmp_path}/begins') == kind


def test_compressed_file__of_few_or_damaged_bytes_has_no_size(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'file'
    path.write_bytes(zlib.compress(bytes(1000))[:-1] + b'?')  # Another checksum.
    assert tfrecord.content_bytes(str(path), tfrecord.ZLIB) == -1
    path.write_bytes(b'\x1f\x8b\1')
    assert tfrecord.claimed_bytes(str(path), tfrecord.GZIP) == 0x01_8B_1F
    path.write_bytes(gzip.compress(bytes(1000)))
    assert tfrecord.claimed_bytes(str(path), tfrecord.GZIP) == 1000


@pytest.mark.parametrize(
    ('fault', 'complete'),
    [('cut', 2), ('without a trailer', 3), ('another stream', 3), ('other data', 3), ('part of a record', 3)],
)
@pytest.mark.parametrize('kind', ['GZIP', 'ZLIB'])
def test_compressed_file__with_another_end_is_refused(
    kind: str, fault: str, complete: int, tmp_path: pathlib.Path
) -> None:
    compress: Any = {'GZIP': gzip.compress, 'ZLIB': zlib.compress}[kind]
    content = pathlib.Path(compressed(tmp_path / 'plain', [1000, 1000, 1000], '')).read_bytes()
    whole = compress(content)
    (tmp_path / 'bad').write_bytes(
        {
            'cut': whole[:-300],
            'without a trailer': whole[:-3],
            'another stream': whole + compress(content[:2032]),
            'other data': whole + b'other data',
            'part of a record': compress(content + content[:11]),
        }[fault]
    )
    path = f'{tmp_path}/bad'
    if fault != 'part of a record':
        assert tfrecord.content_bytes(path, kind) == -1
    checks.check_not_empty('tfrecord', [path])
    with pytest.raises(records.DataError, match=f'{path}: cannot be read: '):
        tfrecord_files.count_records([path])
    found = []
    with pytest.raises(tf.errors.DataLossError) as error:
        for record in tfrecord_files.serialized_in(path):
            found.append(record)
    assert (fault, kind) != ('other data', 'ZLIB') or error.value.message == tfrecord.OTHER_END
    # 2.15 reads all streams of gzip.
    assert len(found) == complete or (fault, kind, len(found)) == ('another stream', 'GZIP', 5)
    with pytest.raises(
        (tf.errors.DataLossError, tf.errors.InvalidArgumentError), match=r'(?s)truncated|inflate|ends e'
    ):
        all_read([path], path)


def test_check_not_empty__names_a_file_of_another_format(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'text').write_text('this is a text, and not a record file')
    (tmp_path / 'folder').mkdir()
    os.mkfifo(f'{tmp_path}/pipe')
    for name, message in (
        ('text', 'not a record file, or damaged near its beginning, or compressed'),
        ('folder', 'cannot be read: .* is a folder'),
        ('pipe', 'cannot be read: .* is a named pipe'),
    ):
        with pytest.raises(records.DataError, match=f'{name}: {message}'):
            checks.check_not_empty('tfrecord', [f'{tmp_path}/{name}'])


def test_check_not_empty__reads_no_more_records_than_it_needs(tmp_path: pathlib.Path) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    content = bytearray(pathlib.Path(path).read_bytes())
    content[-1] ^= 1  # The checksum of the last record.
    pathlib.Path(path).write_bytes(content)
    checks.check_not_empty('tfrecord', [path])
    checks.check_not_empty('tfrecord', [path], skipped=1)
    with pytest.raises(records.DataError, match='damaged near its beginning'):
        checks.check_not_empty('tfrecord', [path], skipped=2)


@pytest.mark.parametrize(('hides_refusals', 'difference'), [(True, 0), (True, 1), (True, -1), (False, 1)])
def test_reader__checks_the_size_if_the_store_hides_refusals(
    hides_refusals: bool, difference: int, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    (path,) = written(tmp_path, records.TRAIN, [3])
    monkeypatch.setattr(remote, 'hides_refusals', lambda folder: hides_refusals and folder == str(tmp_path))
    dataset = tfrecord.reader(str(tmp_path), 1000)(tf.constant(path), tf.constant(3 * 16 + difference))
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        assert [session.run(following) for _ in range(3)] == [b''] * 3
        is_refused = hides_refusals and difference
        expected = tf.errors.InvalidArgumentError if is_refused else tf.errors.OutOfRangeError
        with pytest.raises(expected, match='could not be read beyond byte' if is_refused else ''):
            session.run(following)
