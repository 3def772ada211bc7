"""Patterns of file names: braces as in Bash, wildcards, lists, and what is missing."""

import os
import pathlib
import subprocess
from typing import Any, List

import pytest

from data import braces, file_patterns, remote
from data.braces import PatternError
from data.records import DataError


def touched(folder: pathlib.Path, *names: str) -> pathlib.Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(patterns: str, folder: pathlib.Path) -> List[str]:
    return [os.path.relpath(path, str(folder)) for path in file_patterns.find(patterns, str(folder), 'train_files')]


BRACES = [
    *('a-{000000..000003}.tar', '{0..2}', '{08..11}', '{9..11}', '{3..1}', '{00..10..4}', '{a..c}x', '{-1..1}'),
    *('{a,b}{1..2}', 'x{a,{1..3},}y', '{a,b{c,d}e}', 'plain', '{c..a..2}', '{1..10..-3}', '{01..1}'),
]


@pytest.mark.parametrize('pattern', BRACES)
def test_expand__as_bash(pattern: str) -> None:
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
        ('a{x..3}', 'the range must be of numbers or of letters'),
        ('a,,b', 'one of the names is empty'),
        ('{0..999999999}', 'names more than 1,000,000 files'),
        ('{0..2000}{0..2000}', 'names more than 1,000,000 files'),
    ],
)
def test_expand__refuses(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=f'^--train_files=.*{message}'):
        braces.expand(pattern, 'train_files')


def test_find__wildcards_by_name_and_braces_in_their_order(tmp_path: pathlib.Path) -> None:
    touched(tmp_path, 'x-1.tar', 'x-10.tar', 'x-2.tar', '.x-3.tar', 'x-4.tar.part', 'y/a', 'y/b', 'z/a', 'z/c/a')
    assert names('x-*.tar', tmp_path) == ['x-1.tar', 'x-10.tar', 'x-2.tar']
    assert names('x-[!2]*.tar', tmp_path) == ['x-1.tar', 'x-10.tar']
    assert names('x-{10..1..9}.tar,y/b', tmp_path) == ['x-10.tar', 'x-1.tar', 'y/b']
    # Folders are no files.
    assert names('[yz]/*', tmp_path) == ['y/a', 'y/b', 'z/a']
    assert names('*/?/a,x-?.tar', tmp_path) == ['z/c/a', 'x-1.tar', 'x-2.tar']
    assert file_patterns.find(f'{tmp_path}/y/*', '/elsewhere', 'train_files') == [f'{tmp_path}/y/{n}' for n in 'ab']


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


def test_find__in_a_store(monkeypatch: Any) -> None:
    store = {'gs://b/d': ['t-0.tar', 't-1.tar', 'v/'], 's3://c/': ['k/'], 's3://c/k': ['t-0.tar']}
    monkeypatch.setattr(remote, 'names_in', store.get)
    assert file_patterns.find('t-{0..1}.tar', 'gs://b/d', 'eval_files') == ['gs://b/d/t-0.tar', 'gs://b/d/t-1.tar']
    assert file_patterns.find('gs://b/d/t-*,s3://c/*/t*', '/here', 'eval_files') == [
        *('gs://b/d/t-0.tar', 'gs://b/d/t-1.tar', 's3://c/k/t-0.tar'),
    ]


def test_check_given_once__refuses_braces_that_the_shell_expanded() -> None:
    with pytest.raises(PatternError, match='--train_files: given 2 times, first as a0'):
        braces.check_given_once(['--train_files=a0', '--seed=1', '-train_files=a1'], ['train_files'])
    braces.check_given_once(['--train_files=a0', '--eval_files=a1'], ['train_files', 'eval_files'])
