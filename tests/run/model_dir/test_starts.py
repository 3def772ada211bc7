"""Tests of `starts.jsonl`, `config.json`, and the identity of the source code."""

import dataclasses
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

from inception_v3.config import Config
from inception_v3.run import history, source
from inception_v3.run.hooks.watchers import StartRecorder
from tests.support.checkpoints import save_step
from tests.support.evaluations import DIGITS


def test_record__adds_one_line_per_command_and_logs_a_changed_configuration(tmp_path: Any, caplog: Any) -> None:
    caplog.set_level('INFO')
    config = Config(model_dir=str(tmp_path), train_steps=7)
    first = StartRecorder(config, DIGITS)
    first.graph_built()
    save_step(str(tmp_path), 3)
    first.graph_built()
    (start,) = history.read_starts(str(tmp_path))
    assert (start.step, start.checkpoint) == (0, '')
    assert start.config == {'model_dir': str(tmp_path), 'train_steps': 7}
    assert (start.data_set, start.fingerprint) == ('digits', '0123456789abcdef')
    assert (start.command, start.directory) == (sys.argv, os.getcwd())
    assert start.versions['python'] == platform.python_version()
    assert start.host['cores'] == len(os.sched_getaffinity(0))
    assert 'train_steps: ' not in caplog.text
    # As after a kill during a write.
    with open(str(tmp_path / 'starts.jsonl'), 'a') as file:
        file.write('{"step": 3, "check')
    changed = dataclasses.replace(config, train_steps=9)
    StartRecorder(changed, None).graph_built()
    again, second = history.read_starts(str(tmp_path))
    assert again == start
    assert (second.step, second.checkpoint) == (3, 'model.ckpt-3')
    assert (second.config['train_steps'], second.data_set, second.fingerprint) == (9, '', '')
    assert 'train_steps: 7 -> 9' in caplog.text
    path = tmp_path / 'config.json'
    assert Config.from_json(path.read_text()) == changed
    path.write_text('{broken')
    StartRecorder(changed, None).graph_built()
    assert f'replacing a damaged file: {path}: ' in caplog.text and Config.from_json(path.read_text()) == changed


def git(folder: Any, *arguments: str) -> str:
    names = ['-c', 'user.name=n', '-c', 'user.email=e']
    return subprocess.run(
        ['git', *names, '-C', str(folder), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def test_source_version__has_the_git_revision_and_a_digest_of_the_files(tmp_path: Any, monkeypatch: Any) -> None:
    outer, project = tmp_path / 'outer', tmp_path / 'outer' / 'project'
    (project / 'inception_v3').mkdir(parents=True)
    module = project / 'inception_v3' / 'module.py'
    module.write_text('first')
    git(outer, 'init', '-q')
    monkeypatch.setattr(source, '_ROOT', project)
    version = source.version.__wrapped__
    # The repository in the outer folder does not count: it belongs to another project.
    installed = version()
    assert (installed['revision'], installed['modified']) == (None, None)
    shutil.move(str(outer / '.git'), str(project / '.git'))
    git(project, 'add', '.')
    git(project, 'commit', '-q', '-m', 'first')
    revision = git(project, 'rev-parse', 'HEAD')
    assert version() == {'revision': revision, 'modified': False, 'source': installed['source']}
    (project / 'notes.txt').write_text('no part of the program')
    assert not version()['modified']
    module.write_text('second')
    changed = version()
    assert changed['revision'] == revision and changed['modified'] and changed['source'] != installed['source']
    module.write_text('first')
    (project / 'requirements.lock').write_text('')
    assert version()['modified'] and version()['source'] == installed['source']
    (project / 'requirements.lock').unlink()
    (project / 'data').mkdir()
    (project / 'data' / 'new.py').write_text('')
    added = version()
    assert added['modified'] and added['source'] not in (installed['source'], changed['source'])
