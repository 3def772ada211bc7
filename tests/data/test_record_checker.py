"""Bad records: descriptions of their problems, and the search for bad records."""

import functools
import os
import pathlib
import re
from typing import Any, List

import pytest

from compat import tf
from data import checks, record_checker, records, tf_example
from data.record_checker import RecordChecker
from data.sources import Source
from data.tf_example import Fields
from preprocessing.decoding import decode_image
from tests.data.written_records import written
from tests.support.bad_records import DAMAGES
from tests.support.foreign_records import write_foreign
from tests.support.graphs import evaluate
from tests.support.photos import Photo, photo_example, set_boxes
from tests.support.records import framed
from tests.support.tar_files import write_tar
from tools.datasets import writing


@pytest.fixture(scope='module')
def checker() -> RecordChecker:
    return RecordChecker(6)


@pytest.fixture(scope='module')
def without_boxes() -> RecordChecker:
    return RecordChecker(6, with_boxes=False)


def usable(serialized: bytes) -> bool:
    """Whether the operations of the input pipeline accept a record. They do not check its label."""
    with tf.Graph().as_default():
        record = tf_example.parse(tf.constant(serialized))
        try:
            evaluate(decode_image(record.encoded), record.label, record.bbox)
        except tf.errors.InvalidArgumentError:
            return False
    return True


@pytest.mark.parametrize('label', [0, 1, 5])
def test_good_records_have_no_problem(label: int, checker: RecordChecker, photos: List[Photo]) -> None:
    example = photo_example(photos[0]._replace(label=label))
    serialized = example.SerializeToString()
    assert checker.problem(serialized) is record_checker.field_problem(example, 6) is None and usable(serialized)


@pytest.mark.parametrize('kind', DAMAGES)
def test_problem__is_found_where_the_pipeline_fails(
    kind: str, checker: RecordChecker, without_boxes: RecordChecker, photos: List[Photo]
) -> None:
    spoil, expected = DAMAGES[kind]
    example = photo_example(photos[1])
    spoil(example)
    serialized = example.SerializeToString()
    problem = checker.problem(serialized)
    assert problem is not None and re.search(expected, problem)
    assert usable(serialized) == problem.startswith('label ')
    # Boxes are not always used.
    assert (without_boxes.problem(serialized) is None) == ('boxes' in kind)
    is_of_field = problem.startswith(('no image', 'no label', 'label'))
    assert record_checker.field_problem(example, 6) == (problem if is_of_field else None)


def test_problem__names_a_record_that_is_not_an_example(checker: RecordChecker) -> None:
    assert checker.problem(b'\xff\xff no protocol buffer') == 'not a tf.train.Example.'


def test_problem__names_boxes_with_nan(checker: RecordChecker, photos: List[Photo]) -> None:
    example = photo_example(photos[1])
    set_boxes(example, ymax=[float('nan')])
    expected = 'bounding boxes with NaN: image/object/bbox/* must be fractions of the image.'
    assert checker.problem(example.SerializeToString()) == expected
    assert record_checker.box_problem(example) == expected
    assert record_checker.box_problem(photo_example(photos[1])) is None


def test_problem__names_a_record_that_only_python_can_parse(
    checker: RecordChecker, without_boxes: RecordChecker, photos: List[Photo], monkeypatch: Any
) -> None:
    def fail(*unused: Any) -> None:
        raise tf.errors.InvalidArgumentError(None, None, 'Could not parse example input')

    monkeypatch.setattr(checker._session, 'run', fail)
    monkeypatch.setattr(without_boxes._session, 'run', fail)
    uneven = photo_example(photos[1])
    set_boxes(uneven, ymin=[0.1, 0.2])
    message = 'damaged: its fields cannot be read.'
    assert checker.problem(photo_example(photos[1]).SerializeToString()) == message
    assert without_boxes.problem(uneven.SerializeToString()) == message


@pytest.fixture
def spoilt_paths(tmp_path: pathlib.Path, photos: List[Photo]) -> List[str]:
    """Two files of five photographs. The first and the fourth record of the second file are bad."""
    cut, mislabelled = photos[0]._replace(encoded=photos[0].encoded[:99]), photos[3]._replace(label=77)
    shown = [*photos, cut, *photos[1:3], mislabelled, *photos[4:]]
    writing.write_shards(str(tmp_path), records.TRAIN, [functools.partial(photo_example, each) for each in shown], 2)
    return records.find_shards(str(tmp_path), records.TRAIN)


def test_a_search_finds_the_file_and_the_position(checker: RecordChecker, spoilt_paths: List[str]) -> None:
    found = list(checker.search(spoilt_paths, print))
    assert [(bad.path, bad.position) for bad in found] == [(spoilt_paths[1], 0), (spoilt_paths[1], 3)]
    assert 'cannot be decoded' in found[0].problem
    assert str(found[1]) == (
        f'{spoilt_paths[1]}, record 3: label 77 is not in 0 to 5 (--num_classes=6). Labels that begin at another '
        'number need --label_offset=N, which is added to each.'
    )


@pytest.mark.parametrize('lost', [1, 10, 3000])
def test_search__finds_a_truncation_and_continues(lost: int, checker: RecordChecker, spoilt_paths: List[str]) -> None:
    os.truncate(spoilt_paths[0], os.path.getsize(spoilt_paths[0]) - lost)
    found = list(checker.search(spoilt_paths, print))
    assert [(bad.path, bad.position) for bad in found] == [
        (spoilt_paths[0], 4),
        (spoilt_paths[1], 0),
        (spoilt_paths[1], 3),
    ]
    assert 'damaged or truncated from here on' in found[0].problem


def test_a_search_finds_a_changed_byte(checker: RecordChecker, spoilt_paths: List[str]) -> None:
    first = next(tf.io.tf_record_iterator(spoilt_paths[0]))
    content = bytearray(pathlib.Path(spoilt_paths[0]).read_bytes())
    # The second record: 16 bytes of length and checksums around the first, and 12 before its own data.
    content[16 + len(first) + 12 + 500] ^= 1
    pathlib.Path(spoilt_paths[0]).write_bytes(content)
    found = next(checker.search(spoilt_paths, print))
    assert found[:2] == (spoilt_paths[0], 1) and 'damaged' in found.problem


@pytest.mark.parametrize('length', [2**31, 2**63 - 8, 2**64 - 6])
def test_impossible_record_length__is_named(
    tmp_path: pathlib.Path, checker: RecordChecker, photos: List[Photo], length: int
) -> None:
    writing.write_shards(str(tmp_path), records.TRAIN, [lambda: photo_example(photos[0])] * 3, 1)
    (path,) = records.find_shards(str(tmp_path), records.TRAIN)
    with open(path, 'ab') as file:
        file.write(framed(b'x', length))
    with pytest.raises(
        records.DataError, match=f'{re.escape(path)}, record 3: .*the record claims a length of {length:,}'
    ):
        checks.check_not_empty('tfrecord', [path])
    (found,) = checker.search([path], print)
    assert found.position == 3 and f'the record claims a length of {length:,} bytes' in found.problem


def test_search__reports_progress(tmp_path: pathlib.Path, checker: RecordChecker, monkeypatch: Any) -> None:
    assert record_checker._PROGRESS_EVERY == 100
    monkeypatch.setattr(record_checker, '_PROGRESS_EVERY', 10)
    paths = written(tmp_path, records.TRAIN, [9, 12])
    lines: List[str] = []
    found = list(checker.search(paths, lines.append))
    assert len(found) == 21
    assert lines == [f'{count} records checked, now in {paths[1]}' for count in ('10', '20')]


def test_problem_at__reads_the_record_at_a_known_position(checker: RecordChecker, spoilt_paths: List[str]) -> None:
    bad = checker.problem_at(spoilt_paths[1], 3)
    assert bad[:2] == (spoilt_paths[1], 3)
    assert bad.problem.startswith('label 77')
    assert checker.problem_at(spoilt_paths[1], 1).problem == 'could not be used when it was read.'
    assert checker.problem_at(spoilt_paths[1], 5).problem == 'can no longer be read.'
    assert checker.problem_at('/no/such/file', 0).problem == 'can no longer be read.'


def test_check_keys__names_the_keys_that_the_first_record_has(photos: List[Photo], tmp_path: Any) -> None:
    path = write_foreign(tmp_path / 'some', photos[:2])
    record_checker.check_keys(path, Fields('picture', 'fine_label', 1))
    for fields, message in (
        (Fields(), 'no image: image/encoded must .* has the keys fine_label, picture. --image_key names another'),
        (Fields('picture'), 'no label: image/class/label must .* --label_key names another'),
        (Fields('picture', 'picture'), 'no label: picture must hold one whole number'),
    ):
        with pytest.raises(records.DataError, match=f'{path}, record 0: {message}'):
            record_checker.check_keys(path, fields)


def test_check__reads_the_keys_of_the_first_file_alone(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    writing.write_shards(str(tmp_path), records.TRAIN, [lambda: photo_example(photos[0])], 1)
    foreign = write_foreign(tmp_path / 'foreign', photos[:2])
    of_cls, of_txt = (write_tar(tmp_path / end, [('1.jpg', b'1'), (f'1.{end}', b'1')]) for end in ('cls', 'txt'))
    for source, one, other in (
        (Source(), records.shard_path(str(tmp_path), records.TRAIN, 0, 1), foreign),
        (Source(data_format='tar', fields=Fields(label='cls')), of_cls, of_txt),
    ):
        checks.check(source, [one, other], 0)
        # Records that may be skipped may have other keys.
        checks.check(source, [other, one], 1)
        with pytest.raises(records.DataError, match=f'{other}, record 0: .*no '):
            checks.check(source, [other, one], 0)


def test_label_problem__names_the_range_and_the_offset() -> None:
    assert record_checker.label_problem(0, 10, 1) is None
    assert record_checker.label_problem(10, 10) == (
        'label 10 is not in 0 to 9 (--num_classes=10). Labels that begin at another number need --label_offset=N, '
        'which is added to each.'
    )
    assert record_checker.label_problem(-2, 10, -3) == (
        'label -2 (1 in the record, and --label_offset=-3) is not in 0 to 9 (--num_classes=10).'
    )
