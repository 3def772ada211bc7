"""Tests of runs that start with checkpoints in model_dir: resumed, finished, extended, incompatible and damaged."""

import dataclasses
import io
import json
import os
import pathlib
from types import SimpleNamespace
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf
from compat.errors import CheckpointError
from console.screen import Screen
from inception_v3.config import Config
from inception_v3.model_dir import read_config
from inception_v3.run.evaluations import read_evaluations
from inception_v3.run.hooks.watchers import DivergenceWatcher
from inception_v3.run.starts import read_starts
from inception_v3.train_and_evaluate import Run
from tests.support.runs import all_steps, evaluated_steps, execute, forget
from tests.support.tiers import further


def modification_times(config: Config, pattern: str) -> Dict[pathlib.Path, int]:
    """The modification times of files in model_dir, without event files."""
    paths = pathlib.Path(str(config.model_dir)).glob(pattern)
    return {path: path.stat().st_mtime_ns for path in paths if 'events' not in path.name}


def test_cycles__leave_a_finished_run_unchanged(copied: Config) -> None:
    before = modification_times(copied, 'model.ckpt-*')
    # As after a kill during a write.
    left = pathlib.Path(str(copied.model_dir), 'config.json.unfinished')
    left.write_text('{')
    summary = execute(copied)
    assert not left.exists()
    assert modification_times(copied, 'model.ckpt-*') == before
    assert evaluated_steps(copied) == [2, 4, 5]
    assert '359 images' in summary and 'images/s' not in summary


def test_cycles__resume_at_the_last_checkpoint(copied: Config) -> None:
    # As after a kill in the second cycle, before step 4: the second line of the results is cut short.
    forget(copied, 4, 5)
    results = pathlib.Path(str(copied.model_dir), 'results.jsonl')
    first, second, _ = results.read_text().splitlines(True)
    results.write_text(first + second[:20])
    saved = tf.train.load_checkpoint(os.path.join(str(copied.model_dir), 'model.ckpt-2'))
    execute(copied)
    assert evaluated_steps(copied) == [2, 4, 5]
    assert all_steps(copied)[-1] == 5
    # Training resumed with the saved weights and RMSProp accumulators. The accumulators of a new run start at 1, and
    # each step keeps at least 0.9 of them: after three steps, none would be below 0.9**3.
    resumed = tf.train.load_checkpoint(os.path.join(str(copied.model_dir), 'model.ckpt-5'))
    assert np.abs(resumed.get_tensor('Logits/weights') - saved.get_tensor('Logits/weights')).max() < 0.1
    mean_square = 'Layer/weights/RMSProp'
    assert (resumed.get_tensor(mean_square) >= 0.9**3 * saved.get_tensor(mean_square) * (1 - 1e-5)).all()
    assert resumed.get_tensor(mean_square).min() < 0.9**4


@pytest.mark.parametrize(
    ('changes', 'part'),
    [
        further({'num_classes': 12}, r'Logits/biases has the shape \[11\], not \[12\]'),
        ({'num_classes': 12, 'mode': 'eval'}, r'Logits/biases has the shape \[11\], not \[12\]'),
        ({'optimizer': 'momentum'}, 'Momentum is missing'),
    ],
)
def test_cycles__refuse_a_checkpoint_of_another_network(copied: Config, tmp_path: Any, changes: Any, part: str) -> None:
    before = modification_times(copied, '*.*')
    settings = {'train_steps': 9, 'export_dir': str(tmp_path / 'export'), **changes}
    with pytest.raises(CheckpointError, match=part) as error:
        execute(dataclasses.replace(copied, **settings))
    assert 'model.ckpt-5' in str(error.value) and 'config.json' in str(error.value)
    # The run's files are unchanged, config.json among them, and nothing was exported.
    after = modification_times(copied, '*.*')
    assert {path: after[path] for path in before} == before
    assert os.listdir(str(tmp_path / 'export')) == []


def test_cycles__a_later_worker_has_the_recorded_evaluation_of_the_first(copied: Config, monkeypatch: Any) -> None:
    recorded = read_evaluations(str(copied.model_dir))[-1]
    run = Run(dataclasses.replace(copied, data_dir='elsewhere'), Screen(io.StringIO()))
    # As the first worker sends it.
    monkeypatch.setattr(run._workers, 'share', lambda make: json.loads(json.dumps(recorded._asdict())))
    evaluator: Any = SimpleNamespace(keep=lambda *unused: None)
    assert run._end_cycle_of_earlier_command(evaluator) == recorded


def test_cycles__broken_off_before_a_save_leave_the_settings_of_the_checkpoint(
    copied: Config, monkeypatch: Any
) -> None:
    before = read_config(str(copied.model_dir))

    def interrupt(*unused: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DivergenceWatcher, 'step_done', interrupt)
        execute(dataclasses.replace(copied, mode='train', train_steps=6, preprocessing='vgg'))
    assert read_config(str(copied.model_dir)) == before
    assert [start.step for start in read_starts(str(copied.model_dir))] == [0, 5]
    resumed = dataclasses.replace(copied, mode='train', train_steps=6)
    execute(resumed)
    assert read_config(str(copied.model_dir)) == resumed


@pytest.mark.parametrize(
    ('mode', 'name'),
    [('train', '.data-00000-of-00001'), ('train_and_eval', '.index'), ('eval', '')],
)
def test_cycles__name_a_damaged_checkpoint(copied: Config, mode: str, name: str) -> None:
    # The list, the index or the data.
    os.truncate(os.path.join(str(copied.model_dir), f'model.ckpt-5{name}' if name else 'checkpoint'), 0)
    config = dataclasses.replace(copied, mode=mode, train_steps=9, min_eval_interval=0, eval_timeout=1)
    with pytest.raises(CheckpointError, match=r'/checkpoint: lists |model\.ckpt-5: is damaged'):
        execute(config)


def test_cycles__skip_a_damaged_checkpoint_on_request(copied: Config) -> None:
    os.truncate(os.path.join(str(copied.model_dir), 'model.ckpt-5.data-00000-of-00001'), 0)
    # Training ends at the checkpoint before the damaged one, and its evaluation is recorded.
    summary = execute(dataclasses.replace(copied, skip_damaged_checkpoints=True, train_steps=4, seed=1))
    assert 'of step 4' in summary
    assert all_steps(copied)[-1] == 4
    assert 'model.ckpt-5.index' in os.listdir(os.path.join(str(copied.model_dir), 'passed_over'))
