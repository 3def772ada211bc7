"""Tests of the records of starts, `starts.jsonl` and `config.json`."""

import dataclasses
import os
import platform
import sys
from typing import Any

from inception_v3.config import Config
from inception_v3.run.hooks.watchers import StartRecorder
from inception_v3.run.starts import read_starts, starts_before
from tests.support.checkpoints import save_step
from tests.support.evaluations import DIGITS


def test_record__adds_one_line_per_command_and_logs_a_changed_configuration(tmp_path: Any, caplog: Any) -> None:
    config = Config(model_dir=str(tmp_path), train_steps=7)
    first = StartRecorder(config, DIGITS)
    first.graph_built()
    save_step(str(tmp_path), 3)
    first.graph_built()
    (start,) = read_starts(str(tmp_path))
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
    again, second = read_starts(str(tmp_path))
    assert again == start
    assert (second.step, second.checkpoint) == (3, 'model.ckpt-3')
    assert (second.config['train_steps'], second.data_set, second.fingerprint) == (9, '', '')
    assert 'train_steps: 7 -> 9' in caplog.text
    # The second start has not led to the checkpoint that it resumed.
    assert starts_before(str(tmp_path / 'model.ckpt-3')) == [start]
    path = tmp_path / 'config.json'
    assert Config.from_json(path.read_text()) == changed
    path.write_text('{broken')
    StartRecorder(changed, None).graph_built()
    assert f'replacing a damaged file: {path}: ' in caplog.text and Config.from_json(path.read_text()) == changed
