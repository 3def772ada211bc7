"""The numbers of records that are kept beside a data set."""

import json
import os
import pathlib
from typing import Any, List, Sequence

import pytest

from console.tensorflow_versions import tf
from data import record_counts, records, tfrecord_files
from data.sources import Source
from tests.data.written_records import written

# Numbers that no file has.
WRONG = [
    '{"train-00000-of-00001": {"bytes": Infinity, "records": 4}}',
    '{"train-00000-of-00001": {"bytes": 80, "records": -4}}',
    '{"train-00000-of-00001": {"bytes": 80, "records": 81}}',
    '{"train-00000-of-00001": {"bytes": 80, "records": 4.0}}',
]


class Counter:
    """Counts records as `tfrecord` does, and remembers the files."""

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
    caplog.set_level('INFO')
    paths = written(tmp_path, records.TRAIN, [4])
    path = tmp_path / '.records.json'
    path.write_text(content)
    assert [each.records for each in record_counts.count(paths, tfrecord_files.count_records)] == [4]
    assert json.loads(path.read_text())['train-00000-of-00001']['records'] == 4
    assert bool(content) == any(f'{path}: is damaged, and is written anew' in line for line in caplog.messages)


def test_counts__that_cannot_be_read_or_written(tmp_path: pathlib.Path, caplog: Any) -> None:
    caplog.set_level('INFO')
    paths = written(tmp_path, records.TRAIN, [4])
    (tmp_path / '.records.json').mkdir()
    assert [each.records for each in record_counts.count(paths, tfrecord_files.count_records)] == [4]
    for message in ('cannot be read: ', 'cannot be written, so the records are counted at each start: '):
        assert any(line.startswith(f'{tmp_path}/.records.json: {message}') for line in caplog.messages)


def test_count__of_a_missing_file_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(records.DataError, match=r'a file cannot be read: .*none'):
        record_counts.count([f'{tmp_path}/none'], tfrecord_files.count_records)
