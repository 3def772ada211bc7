"""Runs, read from their model_dirs, and the cases that they form."""

import dataclasses
import json
import os
import shlex
from typing import Any

import numpy as np
import pytest

from compat import tf
from data import remote
from inception_v3.config import Config
from tests.support import recorded
from tests.support.runs import FinishedRun
from tools.studies.report.runs import Case, Comparison, Run, read_run


def test_read_run__has_the_numbers_in_the_files_of_a_run(finished_run: FinishedRun) -> None:
    model_dir = str(finished_run.config.model_dir)
    run = read_run(model_dir, 'mine')
    with open(f'{model_dir}/results.jsonl') as file:
        lines = [json.loads(line) for line in file]
    assert [(each.step, each.top_1, each.top_5, each.cross_entropy) for each in run.evaluations] == [
        (line['step'], line['top_1'], line['top_5'], line['cross_entropy']) for line in lines
    ]
    assert [each.step for each in run.evaluations] == [2, 4, 5]
    written = {}
    for name in sorted(os.listdir(model_dir)):
        if 'tfevents' in name:
            for record in tf.io.tf_record_iterator(f'{model_dir}/{name}'):
                event = tf.Event.FromString(record)
                for value in event.summary.value:
                    number = tf.make_ndarray(value.tensor) if value.HasField('tensor') else value.simple_value
                    written[value.tag, event.step] = float(number)
    assert [point.step for point in run.training] == sorted(step for tag, step in written if tag == 'loss')
    assert len(run.training) >= 2
    assert all(point.loss == written['loss', point.step] for point in run.training)
    assert (run.name, run.seed, run.failure, run.is_finished) == ('mine', 1, None, True)
    assert run.environment['tensorflow'] == tf.__version__
    assert run.environment['directory'] == os.getcwd() and run.environment['started'] == 'step 0'


def test_command__can_be_run_again(tmp_path: Any, monkeypatch: Any) -> None:
    planned = 'python -m inception_v3.main --seed=2'
    assert read_run(str(tmp_path), 'run', planned=planned).command == planned
    for program, expected in (
        (f'{os.getcwd()}/inception_v3/main.py', ['python', '-m', 'inception_v3.main']),
        ('/elsewhere/main.py', ['python', '/elsewhere/main.py']),
        ('inception-v3 train', ['inception-v3', 'train']),
    ):
        monkeypatch.setattr('sys.argv', [program, '--data_dir=/my data', "--model_dir=it's"])
        recorded.write(str(tmp_path), Config(), [])
        command = read_run(str(tmp_path), 'run', planned=planned).command
        assert command is not None and shlex.split(command) == [*expected, '--data_dir=/my data', "--model_dir=it's"]


def test_read_run__refuses_a_pipe_among_the_events(tmp_path: Any) -> None:
    os.mkfifo(f'{tmp_path}/events.out.tfevents.1.host')
    with pytest.raises(remote.RemoteError, match='is a named pipe; only regular files are read'):
        read_run(str(tmp_path), 'run')


def test_read_run__of_a_missing_folder_is_an_empty_run(tmp_path: Any) -> None:
    run = read_run(f'{tmp_path}/nothing', 'run', failure='error: no such TPU')
    assert (run.command, run.seed, run.config, run.evaluations, run.training) == (None, None, None, (), ())
    assert (run.environment, run.failure) == ({}, 'error: no such TPU')


def test_read_run__a_resumed_session_replaces_repeated_steps(tmp_path: Any) -> None:
    """A run killed after step 40 that resumes from step 20: each step appears once, with its last value."""
    otherwise = recorded.evaluation(20, 0.9, changed=('moving_average: True -> False',))
    recorded.write(str(tmp_path), Config(train_batch_size=64), [recorded.evaluation(20, 0.3), otherwise])
    recorded.write_events(str(tmp_path), 'a', 1000.0, [0, 10, 20, 30, 40], [9, 8, 7, 6, 5])
    path = recorded.write_events(str(tmp_path), 'a.v2', 2000.0, [20, 30, 40, 50, 60], [3, 2, 1, 0, 0])
    # A file ends with a partial event while it is written.
    os.truncate(path, os.path.getsize(path) - 5)
    run = read_run(str(tmp_path), 'run')
    # An evaluation with other settings does not count.
    assert [each.top_1 for each in run.evaluations] == [0.3]
    assert [(point.step, point.loss) for point in run.training] == [(0, 9), (10, 8), (20, 3), (30, 2), (40, 1), (50, 0)]
    # Ten steps of 64 images in a second, except after a start.
    assert [point.images_per_second for point in run.training] == [None, 640, None, 640, 640, 640]


def not_started(name: str) -> Run:
    return Run(name, None, None, (), (), {})


def test_finals__are_of_the_finished_runs() -> None:
    runs = (
        recorded.run('done', [0.1, 0.4, 0.75], 1),
        recorded.run('running', [0.3, 0.5], 2),
        recorded.run('failed', [0.2], 3, failure='error: no loss'),
        recorded.run('failed in its export', [0.2, 0.3, 0.5], 4, failure='error: disk full'),
        not_started('waiting'),
    )
    assert Case('case', {}, runs).finals('top_1') == {1: 75, 4: 50}
    states = ['finished', 'at step 290 of 300', 'failed, at step 290 of 300', 'finished', 'not started']
    assert [run.state for run in runs] == states
    # Several runs with the same seed are listed by name.
    again = Case('again', {}, tuple(recorded.run(name, [0, 0, 0.5], seed=1) for name in 'ab'))
    assert again.finals('top_1') == {'a': 50, 'b': 50}


def test_throughput__is_the_median_of_a_run() -> None:
    """The 30 summaries have 101 … 129 images/s; the first has none."""
    case = recorded.case('sgd', [0.5])
    assert case.throughputs == {1: 115}
    (run,) = case.runs
    slow = run.training[-1]._replace(images_per_second=1.0)
    run = dataclasses.replace(run, training=(*run.training[:-1], slow))
    assert dataclasses.replace(case, runs=(run,)).throughputs == {1: 114}


def test_loss__is_the_mean_of_each_span_of_steps() -> None:
    """12,000 steps in 300 points: 40 steps, and four summaries, per point."""
    losses = np.random.RandomState(0).uniform(1, 2, 1200)
    found = recorded.run('long', [], config=Config(train_steps=12000), losses=losses.tolist()).losses
    assert len(found) == 300 and [*found][:2] == [30, 70]
    assert [*found.values()] == pytest.approx(losses.reshape(300, 4).mean(1))


def test_comparison__is_by_epoch_if_batches_differ_and_may_lack_top_5() -> None:
    values: Any = {'train_steps': 300, 'num_train_images': 640, 'use_tpu': False}
    configs = [Config(train_batch_size=size, num_classes=classes, **values) for size, classes in ((64, 5), (128, 5))]
    cases = [Case(str(c), {}, (recorded.run('run', [0.5], config=c),)) for c in configs]
    found = Comparison('title', 'question', tuple(cases))
    assert found.by_epoch and [*found.metrics] == ['top_1', 'cross_entropy']
    waiting = Case('case', {}, (not_started('a'), not_started('b')))
    found = Comparison('title', 'question', (waiting, cases[0]))
    assert not found.by_epoch and (waiting.throughputs, waiting.finals('top_1')) == ({}, {})
