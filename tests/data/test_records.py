"""Finding the record files of a data set by name."""

import os
import pathlib
from typing import List

import pytest

from data import checks, records
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
    assert kinds == {'folder': 'a directory', 'pipe': 'a pipe or a device', 'broken': 'a broken link'}
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
