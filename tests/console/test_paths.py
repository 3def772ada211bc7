"""Tests of `~` in the paths of all command lines."""

import os
import pathlib
import pwd
import sys
from typing import Any

import pytest

from compat.errors import CommandError
from compat.tensorflow import IS_REFERENCE
from console import paths
from console.paths import check_folder, check_stores, expanded
from inception_v3 import flags
from tools.parsers import new_parser

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Any, monkeypatch: Any) -> str:
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return str(tmp_path)


def test_expanded__replaces_a_leading_tilde_of_a_word_or_a_value(home: str, monkeypatch: Any) -> None:
    words = ['~', '~/a b', '--model=~/m', '-data_dir=~', '--glob=~/d/*.jpg', '~/[ab]*.png']
    assert expanded(words) == [
        *(home, f'{home}/a b', f'--model={home}/m', f'-data_dir={home}', f'--glob={home}/d/*.jpg', f'{home}/[ab]*.png')
    ]
    user = pwd.getpwuid(os.getuid())
    found = expanded([f'~{user.pw_name}/x', f'--out=~{user.pw_name}/x'])
    assert found == [f'{user.pw_dir}/x', f'--out={user.pw_dir}/x']
    others = ['./~', 'a~', 'a/~/b', '--x=a~', '~no_such_user/x', 'gs://bucket/~/x', '--', '--json', '', 'a=~/b']
    assert expanded(others) == others
    monkeypatch.setattr(sys, 'argv', ['~/program', '~/x'])
    assert expanded() == [f'{home}/x']


def test_flags__expand_every_path(home: str, tmp_path: Any) -> None:
    (tmp_path / 'flags.txt').write_text('--export_dir=~/e\n')
    config = flags.parse(['main', '--flagfile=~/flags.txt', '--data_dir=~/d', '--model_dir', '~/m']).config
    assert (config.data_dir, config.model_dir, config.export_dir) == (f'{home}/d', f'{home}/m', f'{home}/e')
    own = {'plot': flags.OwnFlag(str, None, 'a path')}
    (tmp_path / 'flags.txt').write_text('--plot=~/p.png\n')
    assert flags.read(['main', '--flagfile=~/flags.txt'], own).own['plot'] == f'{home}/p.png'


def test_every_parser_expands_the_home_folder(home: str) -> None:
    parser = new_parser('example', '')
    parser.add_argument('--out')
    parser.add_subparsers(dest='command').add_parser('write').add_argument('path')
    assert vars(parser.parse_args(['--out=~/o', 'write', '~/p'])) == {
        **{'out': f'{home}/o', 'command': 'write', 'path': f'{home}/p'}
    }
    # Other parsers would not expand it.
    folders = ('console', 'data', 'inception_v3', 'preprocessing', 'tools', 'docs')
    texts = [path.read_text() for folder in folders for path in (ROOT / folder).rglob('*.py')]
    assert sum('argparse.ArgumentParser(' in text for text in texts) == 0 < sum('new_parser(' in text for text in texts)


@pytest.fixture
def no_s3(monkeypatch: Any) -> None:
    """A TensorFlow without s3://, as every TensorFlow 2."""
    if IS_REFERENCE:
        monkeypatch.setattr(paths, '_tensorflow', lambda: ('2.21.0', ['', 'file', 'gs']))


@pytest.mark.parametrize(
    'value', ['s3://b/x', 'a,s3://b/x', 'gs://b/y s3://b/x', ['a', 's3://b/x'], "'s3://b/x'", '--model_dir=s3://b/x']
)
def test_check_stores__refuses_unreachable_stores_and_names_alternatives(value: Any, no_s3: None) -> None:
    with pytest.raises(
        CommandError, match=r'^s3://b/x: TensorFlow .* has no s3://.*aws s3 sync s3://b/x FOLDER.*mount-s3'
    ):
        check_stores([None, 3, 'local', value])


def test_check_stores__leaves_addresses_and_reachable_stores(no_s3: None) -> None:
    check_stores(['gs://b/x', 'grpc://10.0.0.1:8470', 'https://s3.org/s3://', 'folder/s3:/x', 'my-s3://b', True, None])


def test_check_stores__asks_the_tensorflow_that_runs() -> None:
    if IS_REFERENCE:
        check_stores(['s3://b/x', 'hdfs://n/x'])
    else:
        with pytest.raises(CommandError, match=r'^hdfs://n/x: TensorFlow 2'):
            check_stores(['hdfs://n/x'])


def test_commands__refuse_an_unreachable_store_before_anything_else(no_s3: None, tmp_path: Any, capsys: Any) -> None:
    parser = new_parser('test', 'Tests.')
    parser.add_argument('images', nargs='+')
    with pytest.raises(SystemExit) as refusal:
        parser.parse_args(['a.jpg', 's3://b/a.jpg'])
    assert refusal.value.code == 2 and 's3://b/a.jpg: TensorFlow' in capsys.readouterr().err
    (tmp_path / 'flags').write_text('--export_dir=s3://b/e\n')
    with pytest.raises(CommandError, match=r'^s3://b/e: TensorFlow'):
        flags.read(['train', f'--flagfile={tmp_path}/flags'])


def test_check_folder__asks_for_the_name_that_is_like_it(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'records').mkdir()
    for path in ('', 'records', 'gs://b/none', str(tmp_path)):
        check_folder(path)
    for path, question in (('recods', 'records'), (f'{tmp_path}/recrods/', f'{tmp_path}/records'), ('elsewhere', '')):
        with pytest.raises(CommandError) as error:
            check_folder(path, 'data_dir')
        asked = f' Did you mean {question}?' if question else ''
        assert str(error.value) == f'--data_dir={path}: no such folder.{asked}'
