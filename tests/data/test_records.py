"""Finding the record files of a data set by name."""

import os
import pathlib
from typing import Any

import pytest

from data import checks, records, remote
from data.sources import Source
from tests.data.written_records import written


def test_the_shards_of_a_split_are_found_in_order(tmp_path: pathlib.Path) -> None:
    train = written(tmp_path, records.TRAIN, [1] * 12)
    validation = written(tmp_path, records.VALIDATION, [1] * 3)
    (tmp_path / 'dataset.json').touch()
    assert records.find_shards(str(tmp_path), records.TRAIN) == train
    assert records.find_shards(str(tmp_path), records.VALIDATION) == validation
    assert train[10].endswith('/train-00010-of-00012')


def test_find_shards__sorts_the_names_of_a_store(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    paths = written(tmp_path, records.TRAIN, [1] * 5)
    monkeypatch.setattr(remote, 'names_in', lambda folder: sorted(os.listdir(folder), reverse=True))
    assert records.find_shards(str(tmp_path), records.TRAIN) == paths


def test_find_shards__ignores_other_names(tmp_path: pathlib.Path) -> None:
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


def test_find_shards__refuses_a_file(tmp_path: pathlib.Path) -> None:
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
    assert checks.missing(Source(str(tmp_path)), records.TRAIN, paths) == []
    (tmp_path / 'many').mkdir()
    paths = written(tmp_path / 'many', records.TRAIN, [1] * 30)
    for path in paths[2::3]:
        os.remove(path)
    found = records.find_shards(str(tmp_path / 'many'), records.TRAIN)
    assert len(found) == 20
    missing = [f'train-{number:05d}-of-00030' for number in range(2, 30, 3)]
    assert checks.missing(Source(str(tmp_path)), records.TRAIN, found) == missing


def test_shards_of_two_data_sets_are_refused(tmp_path: pathlib.Path) -> None:
    written(tmp_path, records.TRAIN, [1] * 2)
    written(tmp_path, records.TRAIN, [1] * 4)
    assert 'several data sets, -of-00002 and -of-00004. Keep one.' in complaint(tmp_path, records.TRAIN)


def test_find_shards__mentions_tar_shards(tmp_path: pathlib.Path) -> None:
    for name in ('backup.tar', 'train.tar', 'validation-00000.tar'):
        (tmp_path / name).touch()
    assert complaint(tmp_path, records.TRAIN).endswith('it holds backup.tar, train.tar, validation-*.tar.')
    assert complaint(tmp_path, records.VALIDATION).endswith(' --data_format=tar reads tar files.')


def test_irregular_kind__names_what_is_no_file(tmp_path: pathlib.Path) -> None:
    for name in ('file', 'folder', 'pipe', 'link', 'broken'):
        path = tmp_path / name
        if name == 'file':
            path.touch()
        elif name == 'folder':
            path.mkdir()
        elif name == 'pipe':
            os.mkfifo(str(path))
        else:
            path.symlink_to(tmp_path / ('file' if name == 'link' else 'nothing'))
    kinds = {path.name: records.irregular_kind(str(path)) for path in tmp_path.iterdir()}
    assert kinds == {
        'file': None,
        'link': None,
        'folder': 'a directory',
        'pipe': 'a pipe or a device',
        'broken': 'a broken link',
    }
    assert records.irregular_kind(str(tmp_path / 'missing')) is records.irregular_kind('gs://bucket/file') is None


@pytest.mark.parametrize('hides_refusals', [True, False])
def test_expected_sizes__are_those_of_files_whose_store_hides_refusals(
    hides_refusals: bool, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    paths = []
    for size in (3, 0, 70):
        path = tmp_path / str(size)
        path.write_bytes(bytes(size))
        paths.append(str(path))
    assert records.sizes_of(paths) == [3, 0, 70]
    monkeypatch.setattr(remote, 'hides_refusals', lambda path: hides_refusals)
    assert records.expected_sizes(paths) == ([3, 0, 70] if hides_refusals else [0, 0, 0])
