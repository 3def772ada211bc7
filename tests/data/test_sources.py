"""Sources of records: named files, folders, and patterns."""

import pathlib
from typing import Any

import pytest

from data import checks
from data.records import TRAIN, VALIDATION, DataError
from data.sources import Source, common_folder
from tests.data.test_file_patterns import touched


@pytest.mark.parametrize('folder', ['validation', 'val', 'valid', 'eval', 'test'])
def test_find__folders_with_files_of_any_names(folder: str, tmp_path: pathlib.Path) -> None:
    touched(tmp_path, 'train/b', 'train/a.tfrecord', 'train/README', 'train/.hidden', 'train/x.json', 'train/deep/c')
    touched(tmp_path, f'{folder}/0.tar', f'{folder}/all.rec', 'dataset.json')
    source = Source(str(tmp_path))
    train = [f'{tmp_path}/train/a.tfrecord', f'{tmp_path}/train/b']
    assert source.find(TRAIN) == train
    assert source.find(VALIDATION) == [f'{tmp_path}/{folder}/all.rec']
    assert checks.unused(source, TRAIN, train) == ['.hidden', 'README', 'deep', 'x.json']
    assert source._replace(data_format='tar').find(VALIDATION) == [f'{tmp_path}/{folder}/0.tar']
    # Files of the documented names come first.
    touched(tmp_path, 'train-00000-of-00002', 'train-00001-of-00002.gz', 'training.txt')
    assert source.find(TRAIN) == [f'{tmp_path}/train-00000-of-00002']
    assert checks.unused(source, TRAIN, source.find(TRAIN)) == ['train-00001-of-00002.gz', 'train/']
    assert checks.missing(source, TRAIN, source.find(TRAIN)) == ['train-00001-of-00002']


def test_folder__validation_is_unambiguous(tmp_path: pathlib.Path) -> None:
    touched(tmp_path, 'val/a', 'test/a')
    assert Source(str(tmp_path)).folder(VALIDATION) == f'{tmp_path}/val'
    touched(tmp_path, 'valid/a')
    with pytest.raises(DataError, match=r"several folders of validation files: val, valid\. .*--eval_files='val/"):
        Source(str(tmp_path)).find(VALIDATION)
    assert Source(str(tmp_path), eval_files='valid/*').find(VALIDATION) == [f'{tmp_path}/valid/a']


def test_find__refuses_a_file_and_its_compressed_copy(tmp_path: pathlib.Path) -> None:
    touched(tmp_path, 'train/a.gz', 'train/b')
    assert len(Source(str(tmp_path)).find(TRAIN)) == 2
    touched(tmp_path, 'train/a')
    for source in (Source(str(tmp_path)), Source(str(tmp_path), train_files='*/?,*/*.gz')):
        with pytest.raises(DataError, match=rf'{tmp_path}/train/a: its compressed copy .*/a\.gz would be read, too'):
            source.find(TRAIN)


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        (['train/cat/1.jpg'], r'which holds cat\. .*images need inception-v3 from-folder'),
        (['train/1.jpg', 'train/2.jpg'], r'which holds \*\.jpg\. .*inception-v3 from-folder'),
        (['train/00.tar'], r'which holds \*\.tar\. --data_format=tar reads tar files'),
    ],
)
def test_find__a_folder_without_records(names: Any, message: str, tmp_path: pathlib.Path) -> None:
    touched(tmp_path, *names)
    with pytest.raises(DataError, match=f'--data_dir={tmp_path}: no train files in {tmp_path}/train, {message}'):
        Source(str(tmp_path)).find(TRAIN)


def test_find__patterns_replace_the_names_in_data_dir(tmp_path: pathlib.Path) -> None:
    touched(tmp_path, 'train-00000-of-00001', 'digits.tfrecord-00000-of-00003', 'digits.tfrecord-00002-of-00003')
    touched(tmp_path, 'more/a.tar')
    source = Source(str(tmp_path), train_files='digits*')
    assert source.find(TRAIN) == [f'{tmp_path}/digits.tfrecord-0000{number}-of-00003' for number in (0, 2)]
    assert checks.missing(source, TRAIN, source.find(TRAIN)) == ['digits.tfrecord-00001-of-00003']
    assert (source.flag(TRAIN), source.flag(VALIDATION)) == ('--train_files=digits*', f'--data_dir={tmp_path}')
    assert str(source) == f'{tmp_path}, --train_files=digits*'
    with pytest.raises(DataError, match='names tar files, which --data_format=tar reads'):
        source._replace(train_files='more/*').find(TRAIN)


def test_places__are_what_a_tpu_must_reach() -> None:
    source = Source('gs://b/d', train_files='a-{0..3},/here/b', eval_files='')
    assert source.places([TRAIN, VALIDATION]) == {'train_files': '/here/b', 'data_dir': 'gs://b/d'}
    assert source.places([VALIDATION]) == {'data_dir': 'gs://b/d'}
    assert source._replace(train_files='a-{0..3}').places([TRAIN]) == {'train_files': 'gs://b/d/a-0'}
    assert source.place(TRAIN) == 'gs://b/d/a-0'
    assert Source(train_files='a', eval_files='b').is_named([TRAIN, VALIDATION])
    assert not Source(train_files='a').is_named([TRAIN, VALIDATION])


def test_name_of__is_distinct_in_several_folders() -> None:
    paths = ['/d/a/0.tar', '/d/ab/0.tar', '/d/a%2F0.tar']
    assert common_folder(paths) == '/d/' and common_folder(paths[:1]) == '/d/a/' and common_folder(['x', 'y']) == ''
    assert [Source().name_of(path, paths) for path in paths] == ['a%2F0.tar', 'ab%2F0.tar', 'a%252F0.tar']
