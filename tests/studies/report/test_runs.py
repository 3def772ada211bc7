"""Runs, read from their model_dirs."""

import json
import os
import shlex
from typing import Any

import pytest

from console.tensorflow_versions import tf
from inception_v3 import main
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.run.history import RESULTS_FILE
from studies.report.runs import METRICS, read_run
from tests.support import recorded


@pytest.mark.program
@pytest.mark.both
def test_read_run__of_a_real_run(one_layer: None, digits_dir: str, tmp_path: Any) -> None:
    """All numbers equal those in the files that the program wrote."""
    model_dir = f'{tmp_path}/model'
    flags = ['--train_steps=3', '--eval_total_size=64', '--save_summary_steps=1', '--seed=3', '--schedule=cosine']
    flags += [f'--data_dir={digits_dir}', '--export_dir=']
    assert main.main(['/x/inception_v3/main.py', '--preset=digits', f'--model_dir={model_dir}', *flags]) == 0
    run = read_run(model_dir, 'mine')

    with open(f'{model_dir}/results.jsonl') as file:
        lines = [json.loads(line) for line in file]
    assert [(each.step, each.top_1, each.top_5, each.cross_entropy) for each in run.evaluations] == [
        (line['step'], line['top_1'], line['top_5'], line['cross_entropy']) for line in lines
    ]
    assert [each.step for each in run.evaluations] == [3]

    written = {}
    for name in sorted(os.listdir(model_dir)):
        if 'tfevents' in name:
            for record in tf.io.tf_record_iterator(f'{model_dir}/{name}'):
                event = tf.Event.FromString(record)
                for value in event.summary.value:
                    number = tf.make_ndarray(value.tensor) if value.HasField('tensor') else value.simple_value
                    written[value.tag, event.step] = (float(number), event.wall_time)
    assert [point.step for point in run.training] == [0, 1, 2]
    for point in run.training:
        assert point.loss == written['loss', point.step][0]
        assert run.config is not None
        assert point.learning_rate == pytest.approx(learning_rate(point.step, run.config), rel=1e-6)
    assert run.training[0].images_per_second is None
    seconds = written['loss', 2][1] - written['loss', 1][1]
    assert run.training[2].images_per_second == pytest.approx(32 / seconds)

    assert (run.name, run.seed, run.failure) == ('mine', 3, None)
    assert run.environment['tensorflow'] == tf.__version__
    assert run.environment['data set'] == 'digits'
    assert run.environment['directory'] == os.getcwd()
    assert run.environment['started'] == 'step 0'


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


def test_read_run__of_a_folder_that_does_not_exist(tmp_path: Any) -> None:
    run = read_run(f'{tmp_path}/nothing', 'run', failure='error: no such TPU')
    assert (run.command, run.seed, run.config, run.evaluations, run.training) == (None, None, None, (), ())
    assert (run.environment, run.failure) == ({}, 'error: no such TPU')


def test_evaluations__are_the_last_of_each_step(tmp_path: Any) -> None:
    """In order, without evaluations with other settings and truncated lines."""
    evaluations = [
        recorded.evaluation(200, 0.2),
        recorded.evaluation(100, 0.1),
        recorded.evaluation(200, 0.3),
        recorded.evaluation(200, 0.9, changed=('moving_average: True -> False',)),
    ]
    recorded.write(str(tmp_path), Config(), evaluations)
    with open(tmp_path / RESULTS_FILE, 'a') as file:
        file.write('{"step": 300, "top')
    run = read_run(str(tmp_path), 'run')
    assert [(each.step, each.top_1) for each in run.evaluations] == [(100, 0.1), (200, 0.3)]


def test_training__resumed_session_replaces_repeated_steps(tmp_path: Any) -> None:
    """A run killed after step 40 that resumes from step 20: each step appears once, with its last value."""
    recorded.write(str(tmp_path), Config(train_batch_size=64), [])
    recorded.write_events(str(tmp_path), 'a', 1000.0, [0, 10, 20, 30, 40], [9, 8, 7, 6, 5])
    path = recorded.write_events(str(tmp_path), 'a.v2', 2000.0, [20, 30, 40, 50, 60], [3, 2, 1, 0, 0])
    # A file ends with a partial event while it is written.
    os.truncate(path, os.path.getsize(path) - 5)
    run = read_run(str(tmp_path), 'run')
    assert [(point.step, point.loss) for point in run.training] == [(0, 9), (10, 8), (20, 3), (30, 2), (40, 1), (50, 0)]
    # Ten steps of 64 images in a second, except after a start.
    assert [point.images_per_second for point in run.training] == [None, 640, None, 640, 640, 640]


def test_metric_text__scales_and_rounds() -> None:
    assert METRICS['top_1'].text(0.78125) == '78.12'
    assert METRICS['top_1'].text(-0.0123, signed=True) == '−1.23'
    assert METRICS['cross_entropy'].text(1.23456, signed=True) == '+1.2346'
