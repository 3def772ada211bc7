"""Tests of `~` in the paths of all command lines."""

import os
import pathlib
import pwd
import sys
from typing import Any

import pytest

from console.command_line import new_parser
from console.paths import expanded
from inception_v3 import flags

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Any, monkeypatch: Any) -> str:
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return str(tmp_path)


def test_expanded__a_leading_tilde_of_a_word_or_a_value(home: str, monkeypatch: Any) -> None:
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
    # Other parsers would not.
    folders = ('console', 'data', 'inception_v3', 'preprocessing', 'tools', 'docs')
    texts = [path.read_text() for folder in folders for path in (ROOT / folder).rglob('*.py')]
    assert sum('argparse.ArgumentParser(' in text for text in texts) == 0 < sum('new_parser(' in text for text in texts)
