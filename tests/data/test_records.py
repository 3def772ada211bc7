"""Record files: written, found, parsed, and the bad ones told apart."""

import functools
import os
import pathlib
import re
from typing import Any, Callable, List, Optional

import numpy as np
import pytest
import tensorflow as tf

from data import record_checker, records, tf_example, tfrecord, writing
from data.record_checker import RecordChecker
from preprocessing.decoding import decode_image
from tests.support.bad_records import DAMAGES
from tests.support.graphs import evaluate
from tests.support.photos import Photo, photo_example, set_boxes
from tests.support.records import framed


def written(data_dir: Any, split: str, counts: List[int]) -> List[str]:
    """Record files with `counts` empty records each."""
    paths = []
    for shard, count in enumerate(counts):
        paths.append(records.shard_path(str(data_dir), split, shard, len(counts)))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                writer.write(b'')
    return paths


def read(path: str) -> List[bytes]:
    return list(tf.compat.v1.io.tf_record_iterator(path))


# Parsing.


def test_a_record_parses_to_its_image_label_and_boxes(photos: List[Photo]) -> None:
    assert sorted({len(photo.boxes) for photo in photos}) == [0, 1, 2]
    serialized = tf.compat.v1.placeholder(tf.string, [])
    parsed = tf_example.parse(serialized)
    assert [tensor.dtype for tensor in parsed] == [tf.string, tf.int64, tf.float32]
    with tf.compat.v1.Session() as session:
        for photo in photos:
            value = session.run(parsed, {serialized: photo_example(photo).SerializeToString()})
            assert value.encoded == photo.encoded
            assert value.label == photo.label
            assert value.bbox.shape == (1, len(photo.boxes), 4)
            np.testing.assert_array_equal(value.bbox[0], photo.boxes)


def test_boxes_come_as_ymin_xmin_ymax_xmax_and_are_clipped_to_the_image(photos: List[Photo]) -> None:
    example = photo_example(photos[0])
    set_boxes(example, xmax=[0.4, 1.25], ymin=[0.1, -0.5], xmin=[0.2, -0.01], ymax=[0.3, 1.0])
    bbox = evaluate(tf_example.parse(tf.constant(example.SerializeToString())).bbox)
    np.testing.assert_allclose(bbox, [[[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 1.0]]], atol=1e-7)


@pytest.mark.parametrize('missing', ['image/encoded', 'image/class/label'])
def test_a_record_without_image_or_label_fails_when_it_is_parsed(missing: str, photos: List[Photo]) -> None:
    example = photo_example(photos[0])
    del example.features.feature[missing]
    with pytest.raises(tf.errors.InvalidArgumentError, match=missing):
        evaluate(*tf_example.parse(tf.constant(example.SerializeToString())))


# Writing.


def test_an_example_has_imagenets_fields() -> None:
    feature = tf_example.make_example(b'JPEG bytes', 'JPEG', 7, 'tench', 480, 640, 'n01.jpg').features.feature
    assert {name: [*f.bytes_list.value, *f.int64_list.value] for name, f in feature.items()} == {
        'image/encoded': [b'JPEG bytes'],
        'image/format': [b'JPEG'],
        'image/class/label': [7],
        'image/class/text': [b'tench'],
        'image/height': [480],
        'image/width': [640],
        'image/colorspace': [b'RGB'],
        'image/channels': [3],
        'image/filename': [b'n01.jpg'],
    }


@pytest.mark.parametrize(('count', 'shards'), [(10, 3), (7, 7), (12, 4), (3, 5), (1, 1), (100, 16)])
def test_shards_share_the_examples_evenly_and_in_order(tmp_path: pathlib.Path, count: int, shards: int) -> None:
    def numbered(number: int) -> Callable[[], tf.train.Example]:
        return lambda: tf_example.make_example(b'', 'JPEG', number, '', 1, 1, '')

    writing.write_shards(str(tmp_path), records.TRAIN, [numbered(number) for number in range(count)], shards)
    names = [f'train-{shard:05d}-of-{shards:05d}' for shard in range(shards)]
    assert sorted(os.listdir(tmp_path)) == names
    labels = [
        [tf.train.Example.FromString(r).features.feature['image/class/label'].int64_list.value[0] for r in read(path)]
        for path in (str(tmp_path / name) for name in names)
    ]
    assert [label for share in labels for label in share] == list(range(count))
    sizes = [len(share) for share in labels]
    assert max(sizes) - min(sizes) <= 1


def test_a_full_disk_is_a_data_error_that_names_the_file(tmp_path: pathlib.Path) -> None:
    path = records.shard_path(str(tmp_path), records.TRAIN, 0, 1)
    os.symlink('/dev/full', path)
    with pytest.raises(records.DataError, match=f'{re.escape(path)}.*No space left'):
        writing.write_shards(str(tmp_path), records.TRAIN, [tf.train.Example], 1)


# Finding.


def test_the_shards_of_a_split_are_found_in_order(tmp_path: pathlib.Path) -> None:
    train = written(tmp_path, records.TRAIN, [1] * 12)
    validation = written(tmp_path, records.VALIDATION, [1] * 3)
    (tmp_path / 'dataset.json').touch()
    assert records.find_shards(str(tmp_path), records.TRAIN) == train
    assert records.find_shards(str(tmp_path), records.VALIDATION) == validation
    assert train[10].endswith('/train-00010-of-00012')


def test_files_that_are_not_named_as_shards_are_no_shards(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [1, 1])
    for name in ('train-labels.txt', 'train-00001-of-00002.bak', 'train-00000-of-00002_.gstmp', 'old-train-0-of-1'):
        (tmp_path / name).touch()
    assert records.find_shards(str(tmp_path), records.TRAIN) == paths


def complaint(data_dir: pathlib.Path, split: str) -> str:
    with pytest.raises(records.DataError) as error:
        records.find_shards(str(data_dir), split)
    assert f'--data_dir={data_dir}: ' in str(error.value)
    return str(error.value)


def test_a_missing_folder_is_refused(tmp_path: pathlib.Path) -> None:
    assert 'no such folder. It must hold the files' in complaint(tmp_path / 'nowhere', records.TRAIN)


def test_a_file_is_no_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'file').touch()
    assert 'no such folder' in complaint(tmp_path / 'file', records.TRAIN)


@pytest.mark.parametrize(
    ('split', 'expected'),
    [(records.TRAIN, 'train-00000-of-01024'), (records.VALIDATION, 'validation-00000-of-00128')],
)
def test_an_empty_folder_is_refused_with_the_name_of_a_shard(tmp_path: pathlib.Path, split: str, expected: str) -> None:
    message = complaint(tmp_path, split)
    assert f'no {split} files, which are named like {expected}; it is empty.' in message


def test_a_folder_of_training_files_alone_has_no_validation_files(tmp_path: pathlib.Path) -> None:
    written(tmp_path, records.TRAIN, [1, 1])
    (tmp_path / 'readme.txt').touch()
    message = complaint(tmp_path, records.VALIDATION)
    assert 'no validation files' in message
    assert message.endswith('it holds readme.txt, train-*.')


def test_missing_shards_are_named(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [1] * 5)
    assert records.missing_shards(str(tmp_path), records.TRAIN, paths) == []
    for shard in (4, 1):
        os.remove(paths[shard])
    found = records.find_shards(str(tmp_path), records.TRAIN)
    assert len(found) == 3
    missing = ['train-00001-of-00005', 'train-00004-of-00005']
    assert records.missing_shards(str(tmp_path), records.TRAIN, found) == missing


def test_shards_of_two_data_sets_are_refused(tmp_path: pathlib.Path) -> None:
    written(tmp_path, records.TRAIN, [1] * 2)
    written(tmp_path, records.TRAIN, [1] * 4)
    assert 'several data sets, -of-00002 and -of-00004. Keep one.' in complaint(tmp_path, records.TRAIN)


# Checking.


@pytest.fixture
def checker() -> RecordChecker:
    return RecordChecker(6, decode_image)


def test_good_records_have_no_problem(checker: RecordChecker, photos: List[Photo]) -> None:
    assert [checker.problem(photo_example(photo).SerializeToString()) for photo in photos] == [None] * len(photos)


@pytest.mark.parametrize('label', [0, 5])
def test_the_first_and_the_last_label_are_good(checker: RecordChecker, photos: List[Photo], label: int) -> None:
    assert checker.problem(photo_example(photos[0]._replace(label=label)).SerializeToString()) is None


@pytest.mark.parametrize('kind', DAMAGES)
def test_what_is_wrong_with_a_record_is_told(kind: str, checker: RecordChecker, photos: List[Photo]) -> None:
    spoil, expected = DAMAGES[kind]
    example = photo_example(photos[1])
    spoil(example)
    serialized = example.SerializeToString()
    problem = checker.problem(serialized)
    assert problem is not None
    assert re.search(expected, problem)


@pytest.mark.parametrize('kind', DAMAGES)
def test_boxes_are_no_problem_where_they_are_not_wanted(kind: str, photos: List[Photo]) -> None:
    example = photo_example(photos[1])
    DAMAGES[kind][0](example)
    problem = RecordChecker(6, decode_image, with_boxes=False).problem(example.SerializeToString())
    assert (problem is None) == ('boxes' in kind)


def test_what_is_no_example_is_told(checker: RecordChecker) -> None:
    assert checker.problem(b'\xff\xff no protocol buffer') == 'not a tf.train.Example.'


def usable(serialized: bytes) -> bool:
    """Whether the operations of the input pipeline take a record; its label is not theirs to judge."""
    with tf.Graph().as_default():
        record = tf_example.parse(tf.constant(serialized))
        try:
            evaluate(decode_image(record.encoded), record.label, record.bbox)
        except tf.errors.InvalidArgumentError:
            return False
    return True


@pytest.mark.parametrize('kind', [None, *DAMAGES])
def test_the_checker_and_the_pipeline_agree(kind: Optional[str], checker: RecordChecker, photos: List[Photo]) -> None:
    example = photo_example(photos[1])
    if kind:
        DAMAGES[kind][0](example)
    serialized = example.SerializeToString()
    problem = checker.problem(serialized)
    assert usable(serialized) == (problem is None or problem.startswith('label '))


@pytest.fixture
def spoilt_paths(tmp_path: pathlib.Path, photos: List[Photo]) -> List[str]:
    """Two files of five photographs; of the second, the first and the fourth are bad."""
    examples = [lambda p=photo: photo_example(p) for photo in photos]
    examples += [lambda p=photo: photo_example(p._replace(encoded=p.encoded[:99])) for photo in photos[:1]]
    examples += [lambda p=photo: photo_example(p) for photo in photos[1:3]]
    examples += [lambda p=photo: photo_example(p._replace(label=77)) for photo in photos[3:4]]
    examples += [lambda p=photo: photo_example(p) for photo in photos[4:]]
    writing.write_shards(str(tmp_path), records.TRAIN, examples, 2)
    return records.find_shards(str(tmp_path), records.TRAIN)


def test_a_search_finds_the_file_and_the_position(checker: RecordChecker, spoilt_paths: List[str]) -> None:
    found = list(checker.search(spoilt_paths, print))
    assert [(bad.path, bad.position) for bad in found] == [(spoilt_paths[1], 0), (spoilt_paths[1], 3)]
    assert 'cannot be decoded' in found[0].problem
    assert str(found[1]) == f'{spoilt_paths[1]}, record 3: label 77 is not in 0 to 5 (--num_classes=6).'


@pytest.mark.parametrize('lost', [1, 10, 3000])
def test_a_search_finds_where_a_file_is_cut_short_and_goes_on(
    lost: int, checker: RecordChecker, spoilt_paths: List[str]
) -> None:
    with open(spoilt_paths[0], 'rb+') as file:
        file.truncate(os.path.getsize(spoilt_paths[0]) - lost)
    found = list(checker.search(spoilt_paths, print))
    assert [(bad.path, bad.position) for bad in found] == [
        (spoilt_paths[0], 4),
        (spoilt_paths[1], 0),
        (spoilt_paths[1], 3),
    ]
    assert 'damaged or truncated from here on' in found[0].problem


def test_a_search_finds_a_changed_byte(checker: RecordChecker, spoilt_paths: List[str]) -> None:
    first = next(tf.compat.v1.io.tf_record_iterator(spoilt_paths[0]))
    with open(spoilt_paths[0], 'rb+') as file:
        # The second record: 16 bytes of length and checksums around the first, and 12 before its own data.
        file.seek(16 + len(first) + 12 + 500)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    found = next(checker.search(spoilt_paths, print))
    assert (found.path, found.position) == (spoilt_paths[0], 1)
    assert 'damaged' in found.problem


@pytest.mark.parametrize('length', [2**31, 10**12, 2**60, 2**63 - 8, 2**64 - 6])
def test_a_record_that_says_it_is_huge_is_named(
    tmp_path: pathlib.Path, checker: RecordChecker, photos: List[Photo], length: int
) -> None:
    writing.write_shards(str(tmp_path), records.TRAIN, [lambda: photo_example(photos[0])] * 3, 1)
    (path,) = records.find_shards(str(tmp_path), records.TRAIN)
    with open(path, 'ab') as file:
        file.write(framed(b'x', length))
    with pytest.raises(
        records.DataError, match=f'{re.escape(path)}, record 3: .*the record claims a length of {length:,}'
    ):
        tfrecord.check_not_empty([path])
    (found,) = checker.search([path], print)
    assert found.position == 3 and f'the record claims a length of {length:,} bytes' in found.problem


def test_a_length_that_is_cut_short_is_named(
    tmp_path: pathlib.Path, checker: RecordChecker, photos: List[Photo]
) -> None:
    writing.write_shards(str(tmp_path), records.TRAIN, [lambda: photo_example(photos[0])] * 2, 1)
    (path,) = records.find_shards(str(tmp_path), records.TRAIN)
    with open(path, 'ab') as file:
        size = file.tell()
        file.write(bytes(11))
    reason = f'the length of a record is truncated at byte {size:,}'
    message = f'record 2: the file is damaged or truncated from here on: {reason}.'
    with pytest.raises(records.DataError, match=message):
        tfrecord.check_not_empty([path])
    assert [str(bad) for bad in checker.search([path], print)] == [f'{path}, {message}']


# Without what `parse` does about it, the process crashes.
@pytest.mark.parametrize('serialized', [b'\xff\xff no Example', b'\n\xff', b'\n\x02\n\xff', b'\x0b\xff'])
def test_what_is_no_example_fails_when_it_is_parsed(serialized: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=tf_example.UNPARSABLE):
        evaluate(*tf_example.parse(tf.constant(serialized)))


def test_a_search_says_how_far_it_is(tmp_path: pathlib.Path, checker: RecordChecker, monkeypatch: Any) -> None:
    monkeypatch.setattr(record_checker, '_PROGRESS_EVERY', 100)
    paths = written(tmp_path, records.TRAIN, [90, 115])
    lines: List[str] = []
    found = list(checker.search(paths, lines.append))
    assert len(found) == 205
    assert lines == [f'{count} records checked, now in {paths[1]}' for count in ('100', '200')]


def test_the_record_at_a_known_place_is_judged(checker: RecordChecker, spoilt_paths: List[str]) -> None:
    bad = checker.problem_at(spoilt_paths[1], 3)
    assert bad[:2] == (spoilt_paths[1], 3)
    assert bad.problem.startswith('label 77')
    assert checker.problem_at(spoilt_paths[1], 1).problem == 'could not be used when it was read.'
    assert checker.problem_at(spoilt_paths[1], 5).problem == 'can no longer be read.'
    assert checker.problem_at('/no/such/file', 0).problem == 'can no longer be read.'


def test_records_are_counted(tmp_path: pathlib.Path, photos: List[Photo]) -> None:
    paths = written(tmp_path, records.TRAIN, [3, 0, 1000])
    writing.write_shards(str(tmp_path), 'photos', [functools.partial(photo_example, photo) for photo in photos], 1)
    photos_path = records.shard_path(str(tmp_path), 'photos', 0, 1)
    assert tfrecord.count_records([*paths, photos_path]) == [3, 0, 1000, len(photos)]
    # Another file of that name is counted anew.
    assert tfrecord.count_records(written(tmp_path, records.TRAIN, [4, 0, 1000])) == [4, 0, 1000]


def test_counting_ends_where_a_file_is_damaged(tmp_path: pathlib.Path) -> None:
    whole, cut_short, damaged = written(tmp_path, records.TRAIN, [6, 6, 6])
    content = pathlib.Path(whole).read_bytes()
    pathlib.Path(cut_short).write_bytes(content[:-5])
    # A length that leads beyond the end.
    pathlib.Path(damaged).write_bytes(b'\xff' * 12 + content[12:])
    assert tfrecord.count_records([whole, cut_short, damaged]) == [6, 6, 1]


def test_a_file_that_is_gone_cannot_be_counted(tmp_path: pathlib.Path) -> None:
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


def test_what_is_no_record_file_is_named(tmp_path: pathlib.Path) -> None:
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
    with pytest.raises(records.DataError, match=r'train-00000-of-00001: cannot be read: a pipe or a device'):
        tfrecord.check_not_empty([str(path)])


def test_tar_files_are_pointed_at_where_they_are_shards_of_the_split(tmp_path: pathlib.Path) -> None:
    for name in ('backup.tar', 'train.tar', 'validation-00000.tar'):
        (tmp_path / name).touch()
    assert complaint(tmp_path, records.TRAIN).endswith('it holds backup.tar, train.tar, validation-*.tar.')
    assert complaint(tmp_path, records.VALIDATION).endswith(' --data_format=tar reads tar files.')
