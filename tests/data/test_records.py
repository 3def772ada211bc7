"""The files of a data set by their names, and the numbers of records that are kept beside them."""

import json
import os
import pathlib
from typing import Any, List, Sequence

import pytest

from compat import tf
from data import checks, record_counts, records, tfrecord_files
from data.sources import Source
from tests.data.written_records import written


def test_the_shards_of_a_split_are_found_in_order(tmp_path: pathlib.Path) -> None:
    train = written(tmp_path, records.TRAIN, [1] * 12)
    validation = written(tmp_path, records.VALIDATION, [1] * 3)
    others = ('train-labels.txt', 'train-00001-of-00012.bak', 'train-00000-of-00002_.gstmp', 'old-train-0-of-1')
    for name in ('dataset.json', *others):
        (tmp_path / name).touch()
    assert records.find_shards(str(tmp_path), records.TRAIN) == train
    assert records.find_shards(str(tmp_path), records.VALIDATION) == validation
    assert train[10].endswith('/train-00010-of-00012')


def test_missing_shards_are_named(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [1] * 5)
    assert checks.missing(Source(str(tmp_path)), records.TRAIN, paths) == []
    (tmp_path / 'many').mkdir()
    paths = written(tmp_path / 'many', records.TRAIN, [1] * 30)
    for path in paths[2::3]:
        os.remove(path)
    found = records.find_shards(str(tmp_path / 'many'), records.TRAIN)
    assert len(found) == 20
    missing = [f'train-{number:05d}-of-00030' for number in range(2, 30, 3)]
    assert checks.missing(Source(str(tmp_path)), records.TRAIN, found) == missing


def test_irregular_kind__names_what_is_no_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'file').touch()
    (tmp_path / 'folder').mkdir()
    os.mkfifo(str(tmp_path / 'pipe'))
    (tmp_path / 'link').symlink_to(tmp_path / 'file')
    (tmp_path / 'broken').symlink_to(tmp_path / 'nothing')
    kinds = {path.name: records.irregular_kind(str(path)) for path in tmp_path.iterdir()}
    assert kinds.pop('file') is kinds.pop('link') is None
    assert kinds == {'folder': 'a folder', 'pipe': 'a named pipe', 'broken': 'a broken link'}
    assert records.irregular_kind(str(tmp_path / 'missing')) is records.irregular_kind('gs://bucket/file') is None


@pytest.mark.parametrize(
    ('names', 'split', 'message'),
    [
        ([], 'train', 'no train files, which are named like train-00000-of-01024; it is empty.'),
        ([], 'validation', 'no validation files, which are named like validation-00000-of-00128; it is empty.'),
        (['train-00000-of-00001', 'readme.txt'], 'validation', 'it holds readme.txt, train-*.'),
        (['train-00000-of-00002', 'train-00000-of-00004'], 'train', 'several data sets, -of-00002 and -of-00004. Keep'),
        (['validation-00000.tar', 'train.tar'], 'validation', '--data_format=tar reads tar files.'),
        (['validation-00000.tar', 'train.tar'], 'train', 'it holds train.tar, validation-*.tar.'),
    ],
)
def test_find_shards__refuses_other_folders(names: List[str], split: str, message: str, tmp_path: pathlib.Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(records.DataError) as error:
        records.find_shards(str(tmp_path), split)
    assert f'--data_dir={tmp_path}: ' in str(error.value) and message in str(error.value)


def test_find_shards__refuses_what_is_no_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'file').touch()
    for name in ('file', 'nowhere'):
        with pytest.raises(records.DataError, match='no such folder'):
            records.find_shards(str(tmp_path / name), records.TRAIN)


# Impossible sizes and numbers of records.
WRONG = [
    '{"train-00000-of-00001": {"bytes": Infinity, "records": 4}}',
    '{"train-00000-of-00001": {"bytes": 80, "records": -1}}',
    '{"train-00000-of-00001": {"bytes": 80, "records": 81}}',
    '{"train-00000-of-00001": {"bytes": 80, "records": 4.0}}',
]


class Counter:
    """Counts records as `tfrecord_files` does, and remembers the files."""

    def __init__(self) -> None:
        self.files: List[str] = []

    def __call__(self, paths: Sequence[str]) -> List[int]:
        self.files += map(os.path.basename, paths)
        return tfrecord_files.count_records(paths)


def test_count__reads_each_file_once(tmp_path: pathlib.Path) -> None:
    paths = written(tmp_path, records.TRAIN, [3, 0, 2])
    sizes = [os.path.getsize(path) for path in paths]
    counter = Counter()
    expected = [*zip(sizes, [3, 0, 2])]
    assert record_counts.count(paths, counter) == expected
    assert counter.files == ['train-00000-of-00003', 'train-00001-of-00003', 'train-00002-of-00003']
    assert record_counts.count(paths, counter) == expected
    assert len(counter.files) == 3
    # A file that has changed, and a new one: the others are not read again.
    with tf.io.TFRecordWriter(paths[1]) as writer:
        writer.write(b'new')
    (*more,) = written(tmp_path, records.VALIDATION, [5])
    assert [each.records for each in record_counts.count([*paths, *more], counter)] == [3, 1, 2, 5]
    assert counter.files[3:] == ['train-00001-of-00003', 'validation-00000-of-00001']


def test_count__keeps_counts_written_in_the_meantime(tmp_path: pathlib.Path) -> None:
    paths, counter = written(tmp_path, records.TRAIN, [3, 2]), Counter()

    def while_another_counts(of: Sequence[str]) -> List[int]:
        record_counts.count(paths[1:], counter)
        return counter(of)

    record_counts.count(paths[:1], while_another_counts)
    assert [each.records for each in record_counts.count(paths, counter)] == [3, 2]
    assert counter.files == ['train-00001-of-00002', 'train-00000-of-00002']


def test_counts__are_kept_in_the_folder_of_each_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a').mkdir()
    (tmp_path / 'b').mkdir()
    (one,), (other,) = written(tmp_path / 'a', records.TRAIN, [1]), written(tmp_path / 'b', records.TRAIN, [2])
    (last,) = written(tmp_path / 'a', records.VALIDATION, [3])
    assert [each.records for each in Source(data_format='tfrecord').contents([one, other, last])] == [1, 2, 3]
    assert not (tmp_path / '.records.json').exists()
    kept = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob('*/.records.json')}
    assert {folder: {name: each['records'] for name, each in files.items()} for folder, files in kept.items()} == {
        'a': {'train-00000-of-00001': 1, 'validation-00000-of-00001': 3},
        'b': {'train-00000-of-00001': 2},
    }


@pytest.mark.parametrize(
    'content', ['', '{', '[]', '{"train-00000-of-00001": 3}', '{"train-00000-of-00001": {}}', *WRONG]
)
def test_damaged_counts__are_replaced(content: str, tmp_path: pathlib.Path, caplog: Any) -> None:
    paths = written(tmp_path, records.TRAIN, [4])
    path = tmp_path / '.records.json'
    path.write_text(content)
    assert [each.records for each in record_counts.count(paths, tfrecord_files.count_records)] == [4]
    assert json.loads(path.read_text())['train-00000-of-00001']['records'] == 4
    assert bool(content) == any(f'{path}: is damaged, and is written anew' in line for line in caplog.messages)


def test_counts__that_cannot_be_kept_are_made_again_with_a_warning(tmp_path: pathlib.Path, caplog: Any) -> None:
    paths = written(tmp_path, records.TRAIN, [4])
    (tmp_path / '.records.json').mkdir()
    assert [each.records for each in record_counts.count(paths, tfrecord_files.count_records)] == [4]
    for message in ('cannot be read: ', 'cannot be written, so the records are counted at each start: '):
        start = f'{tmp_path}/.records.json: {message}'
        reasons = [line[len(start) :] for line in caplog.messages if line.startswith(start)]
        assert reasons and all(each.strip() and '\n' not in each for each in reasons)


def test_count__of_a_missing_file_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(records.DataError, match=r'a file cannot be read: .*none'):
        record_counts.count([f'{tmp_path}/none'], tfrecord_files.count_records)
