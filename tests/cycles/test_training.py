"""Tests of cycles of training and evaluation, and of the files and summaries that a run writes."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import pytest

from compat import tf
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import step_of
from tests.support.events import read_events
from tests.support.runs import FinishedRun, all_steps, evaluated_steps, execute

IMAGES = 359


def test_cycles__evaluate_after_each_and_end_at_train_steps(finished_run: FinishedRun) -> None:
    config = finished_run.config
    assert evaluated_steps(config) == [2, 4, 5]
    latest = tf.train.latest_checkpoint(config.model_dir)
    assert os.path.basename(latest) == 'model.ckpt-5'
    assert step_of(latest) == 5
    # No other steps: the later cycles do not save a step in between.
    assert all_steps(config) == [0, 2, 4, 5]


def test_results__are_json_lines_with_the_documented_keys(finished_run: FinishedRun) -> None:
    config = finished_run.config
    lines = pathlib.Path(str(config.model_dir), 'results.jsonl').read_text().splitlines()
    assert len(lines) == 3
    for line in map(json.loads, lines):
        assert line['checkpoint'] == f'model.ckpt-{line["step"]}'
        assert line['weights'] == 'average'
        assert line['images'] == IMAGES
        assert 0 <= line['top_1'] <= line['top_5'] <= 1
        # The accuracies are whole numbers of images, divided by 359.
        for name in ('top_1', 'top_5'):
            assert line[name] * IMAGES == pytest.approx(round(line[name] * IMAGES), abs=1e-3)
        assert line['cross_entropy'] > 0


def test_host_call__writes_loss_learning_rate_and_epoch(finished_run: FinishedRun) -> None:
    config = finished_run.config
    events = read_events(str(config.model_dir))
    # Every second step (save_summary_steps); an event's step is the number of steps completed before it.
    assert set(events['loss']) == set(events['learning_rate']) == set(events['epoch']) == {0, 2, 4}
    assert events['learning_rate'][0] == pytest.approx(0.3 * 8 / 256)
    assert events['epoch'][4] == pytest.approx(4 * 8 / 1438)
    assert all(loss > 2 for loss in events['loss'].values())


def test_cycles__write_the_graph_once_per_command(finished_run: FinishedRun) -> None:
    paths = pathlib.Path(str(finished_run.config.model_dir)).glob('events.*')
    events = [event for path in paths for event in tf.train.summary_iterator(str(path))]
    (graph,) = [event.graph_def for event in events if event.graph_def]
    assert b'ApplyRMSProp' in graph


def test_run__refuses_an_unwritable_folder_before_training(copied: Config, tmp_path: Any) -> None:
    (tmp_path / 'file').write_text('')
    config = dataclasses.replace(copied, train_steps=9, export_dir=str(tmp_path / 'file' / 'folder'))
    with pytest.raises(ConfigError, match=f'--export_dir={tmp_path}/file/folder: cannot be written to'):
        execute(config)
    assert all_steps(copied)[-1] == 5
