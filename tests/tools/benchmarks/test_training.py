"""Tests of the benchmark of training: its arithmetic on invented measurements, and a run in this process."""

import dataclasses
import json
import os
from typing import Any, Dict, List

import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from tests.support.graphs import draw_many
from tools.benchmarks import steps, training
from tools.benchmarks.training import REAL, REPEATED, Training

MEASURED: Dict[str, List[Training]] = {
    REAL: [
        Training('a device', 1000, [80.0, 120.0], [150.0, 160.0]),
        Training('a device', 1000, [210.0, 190.0], [170.0, 180.0]),
    ],
    REPEATED: [
        Training('a device', 1000, [70.0, 80.0], [99.0, 99.0]),
        Training('a device', 1000, [205.0, 205.0], [99.0, 99.0]),
    ],
}


def test_result__has_rates_steps_and_the_share_of_the_input() -> None:
    config = Config(
        use_tpu=False,
        train_batch_size=64,
        data_dir='/home/me/data',
        model_dir='/home/me/run',
        init_from='/home/me/weights.npz',
        class_weights='/home/me/weights.csv=1,2',
        gcp_project='mine',
    )
    found = training.result(config, MEASURED)
    # Means of 100 and 200 ms per step with 64 images, against 75 and 205.
    assert found['real_input'] == {
        'images_per_second': {'median': 480.0, 'least': 320.0, 'greatest': 640.0},
        'step_ms': {'median': 155.0, 'least': 80.0, 'greatest': 210.0},
        'cpu_ms': {'median': 165.0, 'least': 150.0, 'greatest': 180.0},
    }
    assert found['repeated_batch']['images_per_second'] == {'median': 582.8, 'least': 312.2, 'greatest': 853.3}
    # A round whose repeated batch was slower, by noise, counts as no wait.
    assert found['input_share'] == {'median': 0.125, 'least': 0.0, 'greatest': 0.25}
    assert (found['kind'], found['device'], found['parameters'], found['rounds']) == ('cpu', 'a device', 1000, 2)
    assert found['settings'] == {'use_tpu': False, 'train_batch_size': 64}
    assert not [word for word in ('me', 'mine') if f'/{word}/' in json.dumps(found) or f'"{word}"' in json.dumps(found)]
    assert {'date', 'host', 'tensorflow', 'python', 'revision', 'modified'} < {*found}
    others: List[Any] = [
        ({'tpu': 'emulated:8'}, 'emulated'),
        ({'tpu': 'node'}, 'tpu'),
        ({'use_tpu': False, 'accelerator': 'gpu'}, 'gpu'),
    ]
    for changes, kind in others:
        named = training.result(Config(**changes), MEASURED, 'my device')
        assert (named['kind'], named['device']) == (kind, 'my device')


@pytest.mark.parametrize(
    ('use_tpu', 'iterations', 'steps', 'expected'),
    [(False, 100, 20, 23), (False, 100, 1, 5), (True, 10, 25, 40), (True, 100, 20, 300)],
)
def test_with_steps__has_a_warm_up_and_whole_loops(use_tpu: bool, iterations: int, steps: int, expected: int) -> None:
    config = training.with_steps(Config(use_tpu=use_tpu, iterations=iterations), steps)
    assert (config.train_steps, config.mode) == (expected, 'train')


@pytest.mark.parametrize('kind', [pytest.param(REAL, marks=pytest.mark.program), REPEATED])
def test_measure_here__measures_each_step_after_the_warm_up(small_config: Config, one_layer: None, kind: str) -> None:
    config = training.with_steps(dataclasses.replace(small_config, followup_shuffle_buffer_size=8), 4)
    measured = steps.measure_here(config, kind)
    assert len(measured.step_ms) == len(measured.cpu_ms) == 4 and min(measured.step_ms) > 0
    # All threads of this process: at most the number of cores times the time, except for the clock's ticks.
    assert 0 < sum(measured.cpu_ms) < len(os.sched_getaffinity(0)) * sum(measured.step_ms) + 50
    assert measured.device.endswith(' cores')
    # A convolution of 3 x 3 x 3 x 16 weights, 16 offsets of its batch normalization, and the logits of 11 classes.
    assert measured.parameters == 432 + 16 + 17 * 11


def test_repeated_batch__is_one_of_the_runs_shape_again_and_again(small_config: Config) -> None:
    def batches(input_fn: Any) -> List[Any]:
        return draw_many(tf.data.make_one_shot_iterator(input_fn({'batch_size': 2})).get_next(), 3)

    (first, labels), *others = batches(steps.repeated_batch(small_config))
    ours, our_labels = batches(InputPipeline(is_training=True, config=small_config))[0]
    assert (first.shape, first.dtype, labels.dtype) == (ours.shape, ours.dtype, our_labels.dtype)
    assert all((images == first).all() and (same == labels).all() for images, same in others)


def test_command__prints_a_line_of_json_last(monkeypatch: Any, capsys: Any, digits_dir: str, one_layer: None) -> None:
    measured = {kind: iter(of_kind) for kind, of_kind in MEASURED.items()}
    monkeypatch.setattr(training, 'measure', lambda config, kind: next(measured[kind]))
    argv = ['training', '--preset=digits', f'--data_dir={digits_dir}', '--repeats=2', '--steps=2']
    assert training.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1])['input_share']['median'] == 0.125
    assert 'the device waits for its input 12% of the time (0%–25%)' in lines


@pytest.mark.parametrize(
    ('words', 'preset'),
    [
        (['-data_dir=D'], None),
        (['--flagfile=F'], None),
        (['--', '--data_dir=D'], None),
        (['--use_tpu=False', '--steps=3'], 'digits'),
        (['--device_name=--data_dir'], 'digits'),
    ],
)
def test_command__measures_the_digits_unless_data_is_named(
    words: List[str], preset: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'F').write_text('--data_dir=D\n')
    given: List[List[str]] = []
    monkeypatch.setattr(training.command, 'run', lambda argv, *unused, **also: given.append(argv))
    training.main(['benchmark-train', *words])
    assert ('--preset=digits' in given[0]) is bool(preset)


def test_command__refuses_several_machines_and_says_what_to_measure(capsys: Any) -> None:
    hosts = ['--worker_hosts=a:2222,b:2222', '--task_index=0']
    assert training.main(['benchmark-train', *hosts, '--train_batch_size=64']) == 2
    assert (
        'measures one machine. Leave out the flag and --task_index, with --train_batch_size=32;'
        in capsys.readouterr().err
    )


def test_command__refuses_what_a_run_refuses(capsys: Any, digits_dir: str) -> None:
    assert training.main(['training', '--use_data=fake', '--accelerator=gpu', '--tpu=node']) == 2
    assert '--accelerator=gpu: is the device of a run without a TPU' in capsys.readouterr().err
    assert training.main(['training', '--use_data=fake', '--train_batch_size=8', '--use_tpu=True']) == 2
    assert 'name the TPU with --tpu' in capsys.readouterr().err
