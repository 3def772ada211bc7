"""Sources of records: named files, folders, and patterns with braces, wildcards and lists."""

import os
import pathlib
import subprocess
from typing import Any, List

import pytest

from data import braces, checks, file_patterns, remote
from data.braces import PatternError
from data.records import TRAIN, VALIDATION, DataError
from data.sources import Source, common_folder


def touched(folder: pathlib.Path, *names: str) -> pathlib.Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(patterns: str, folder: pathlib.Path) -> List[str]:
    return [os.path.relpath(path, str(folder)) for path in file_patterns.find(patterns, str(folder), 'train_files')]


BRACES = [
    *('a-{000000..000003}.tar', '{0..2}', '{08..11}', '{9..11}', '{3..1}', '{01..1}'),
    *('{a,b}{1..2}', 'x{a,{1..3},}y', '{a,b{c,d}e}', 'plain'),
]


@pytest.mark.parametrize('pattern', BRACES)
def test_expand__gives_the_words_that_bash_gives(pattern: str) -> None:
    expected = subprocess.run(
        ['bash', '-c', f'printf "%s\\n" {pattern}'], stdout=subprocess.PIPE, text=True, check=True
    )
    assert braces.expand(pattern, 'train_files') == expected.stdout.split()


def test_expand__separates_by_commas_outside_of_braces() -> None:
    assert braces.expand('{a,b}.tar, c*.tar,d', 'eval_files') == ['a.tar', 'b.tar', 'c*.tar', 'd']


@pytest.mark.parametrize(
    ('pattern', 'message'),
    [
        ('a{0..3', 'an opening brace without a closing one'),
        ('a}0..3{', 'a closing brace without an opening one'),
        ('a{000-639}', r'\{000-639\} is neither a range'),
        ('a{x..3}', r'\{x..3\} is neither a range'),
        ('a,,b', 'one of the names is empty'),
        ('{0..999999999}', 'names more than 1,000,000 files'),
        ('{0..2000}{0..2000}', 'names more than 1,000,000 files'),
        ('pipe:gsutil cat gs://b/{0..9}.tar', r'commands are not run. Name the files: gs://b/\{0..9\}.tar$'),
        ('pipe:', 'commands are not run. Name the files: gs://bucket/'),
    ],
)
def test_expand__refuses_patterns_with_wrong_braces(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=f'^--train_files=.*{message}'):
        braces.expand(pattern, 'train_files')


def test_find__wildcards_by_name_and_braces_in_their_order(tmp_path: pathlib.Path) -> None:
    touched(tmp_path, 'x-1.tar', 'x-10.tar', 'x-2.tar', '.x-3.tar', 'x-4.tar.part', 'y/a', 'y/b', 'z/a', 'z/c/a')
    assert names('x-*.tar', tmp_path) == ['x-1.tar', 'x-10.tar', 'x-2.tar']
    assert names('x-[!2]*.tar', tmp_path) == ['x-1.tar', 'x-10.tar']
    assert names('x-{10,1}.tar,y/b', tmp_path) == ['x-10.tar', 'x-1.tar', 'y/b']
    # Folders do not match.
    assert names('[yz]/*', tmp_path) == ['y/a', 'y/b', 'z/a']
    assert names('*/?/a,x-?.tar', tmp_path) == ['z/c/a', 'x-1.tar', 'x-2.tar']
    assert file_patterns.find(f'{tmp_path}/y/*', '/elsewhere', 'train_files') == [f'{tmp_path}/y/{n}' for n in 'ab']


@pytest.mark.parametrize('folder', ['[1] a*?', '**', '[b'])
def test_find__takes_the_folder_by_its_name(folder: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    data_dir = tmp_path / folder
    touched(data_dir, 'x-1.tar', 'y/x-2.tar')
    monkeypatch.setenv('HOME', str(data_dir))
    assert names('x-1.tar,*/x-[2].tar', data_dir) == ['x-1.tar', 'y/x-2.tar']
    assert names('~/x-*', data_dir) == ['x-1.tar']
    with pytest.raises(DataError, match=r'x-2\.tar\. .* holds x-\*\.tar, y\. Supply them'):
        names('x-{1,2}.tar', data_dir)


def test_find__names_what_is_missing(tmp_path: pathlib.Path) -> None:
    touched(tmp_path, *(f'cifar-{number:03d}.tar' for number in range(8)))
    with pytest.raises(DataError) as error:
        names('cifar-{000..011}.tar', tmp_path)
    assert str(error.value) == (
        f'--train_files=cifar-{{000..011}}.tar: 4 of 12 files are missing: {tmp_path}/cifar-008.tar, '
        f'{tmp_path}/cifar-009.tar, {tmp_path}/cifar-010.tar and 1 more. {tmp_path} holds cifar-*.tar. Supply them, or '
        'name the files that there are.'
    )
    for pattern, message in (
        ('cifar_*.tar', rf'no file matches {tmp_path}/cifar_\*\.tar\. {tmp_path} holds cifar-\*\.tar\.'),
        ('nowhere/*', f'no file matches .* {tmp_path}/nowhere is empty or does not exist'),
        ('cifar-00*,cifar-007.tar', f'names 1 files more than once: {tmp_path}/cifar-007.tar'),
        ('', 'is a folder'),
    ):
        with pytest.raises(DataError, match=message):
            names(pattern or str(tmp_path), tmp_path)
    with pytest.raises(PatternError, match=r'\*\* is not supported'):
        names('**/cifar-*', tmp_path)


def test_find__matches_names_in_a_store(monkeypatch: Any) -> None:
    store = {'gs://b/d': ['t-0.tar', 't-1.tar', 'v/'], 's3://c/': ['k/'], 's3://c/k': ['t-0.tar']}
    monkeypatch.setattr(remote, 'names_in', store.get)
    assert file_patterns.find('t-{0..1}.tar', 'gs://b/d', 'eval_files') == ['gs://b/d/t-0.tar', 'gs://b/d/t-1.tar']
    assert file_patterns.find('gs://b/d/t-*,s3://c/*/t*', '/here', 'eval_files') == [
        *('gs://b/d/t-0.tar', 'gs://b/d/t-1.tar', 's3://c/k/t-0.tar'),
    ]
    with pytest.raises(DataError, match=r': names files on gs:// and s3://\. Keep a split in one place'):
        Source('/here', eval_files='gs://b/d/t-*,s3://c/*/t*').find(VALIDATION)


@pytest.mark.parametrize('folder', ['validation', 'val', 'valid', 'eval', 'test'])
def test_find__takes_files_of_any_names_in_folders_of_splits(folder: str, tmp_path: pathlib.Path) -> None:
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


def test_find__refuses_several_folders_of_validation_files(tmp_path: pathlib.Path) -> None:
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
def test_find__names_a_folder_without_records(names: Any, message: str, tmp_path: pathlib.Path) -> None:
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
