"""The comparison of training steps with those of other libraries: its clock, its table, and the steps themselves."""

import json
import os
import time
from typing import Any, Dict, List

import pytest

from benchmarks.measurement import MeasurementError
from benchmarks.peers import environments, meter, steps
from benchmarks.peers.steps import Steps
from console.tensorflow_versions import tf

_OURS, _OTHERS = (27145970, 'X 1'), (27164082, 'Y 2')
MEASURED: Dict[str, List[Steps]] = {
    'ours_1.15': [Steps([4000, 8000], [6000, 8000], *_OURS), Steps([2000, 2000], [10000, 10000], *_OURS)],
    'torchvision': [Steps([8000, 8000], [14000, 14000], *_OTHERS), Steps([1000, 1000], [5000, 5000], *_OTHERS)],
}


def test_timed__counts_the_steps_after_the_warm_up() -> None:
    taken: List[float] = []

    def step() -> None:
        taken.append(time.perf_counter())
        # Half of a step computes, and half waits. The second step is the first that is measured.
        end = time.process_time() + (0.1 if len(taken) > 1 else 0.5)
        while time.process_time() < end:
            pass
        time.sleep(0.1)

    found = meter.timed(step, 1, 2)
    assert len(taken) == 3
    for step_ms, cpu_ms in zip(found['step_ms'], found['cpu_ms']):
        assert 90 < cpu_ms < 150 < 190 < step_ms
    assert [len(values) for values in found.values()] == [2, 2]


def test_show__has_medians_and_ratios_in_rounds(capsys: Any) -> None:
    config = steps.Config(train_batch_size=8)
    steps.show(MEASURED, {'keras_2.15': 'not installed: get it'}, False, config)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith('training steps with 8 images of 299 x 299 pixels; on ')
    assert [' '.join(line.split()) for line in lines[-3:]] == [
        'ours_1.15 X 1 27,145,970 8.50 (7.00–10.00) 2.67 (1.33–4.00) 1.00 (1.00–1.00)',
        'torchvision Y 2 27,164,082 9.50 (5.00–14.00) 4.50 (1.00–8.00) 1.25 (0.50–2.00)',
        'keras_2.15: not installed: get it',
    ]
    steps.show(MEASURED, {'keras_2.15': 'not installed: get it'}, True, config)
    found = json.loads(capsys.readouterr().out)
    assert found['rows'][1]['over_first'] == {'median': 1.25, 'least': 0.5, 'greatest': 2.0}
    assert found['problems'] == {'keras_2.15': 'not installed: get it'}


def test_command__measures_what_is_installed_and_names_the_rest(monkeypatch: Any, capsys: Any) -> None:
    def measure(name: str, python: str, config: Any, count: int) -> Steps:
        assert (config.train_batch_size, config.use_tpu, config.use_data, config.train_steps) == (8, False, 'fake', 5)
        if name == 'torchvision':
            raise MeasurementError('no memory')
        return MEASURED['ours_1.15'][0]

    monkeypatch.setattr(steps, 'measure', measure)
    monkeypatch.setattr(environments, '_TENSORFLOW', {'1.15': 'one', '2.15': 'two'})
    monkeypatch.setattr(environments.tf, '__version__', '1.15.5')
    tf2 = str(environments.ROOT / 'two' / 'bin' / 'python')
    monkeypatch.setattr(environments, 'is_installed', lambda python, library: python != tf2)
    assert steps.main(['steps', '--steps=2', '--repeats=1', '--peers=keras_1.15,keras_2.15,torchvision', '--json']) == 1
    found = json.loads(capsys.readouterr().out)
    assert [row['program'] for row in found['rows']] == ['keras_1.15']
    assert found['problems'] == {
        'keras_2.15': 'not installed: ./run --tf=2.15 true',
        'torchvision': 'failed: no memory',
    }


@pytest.mark.parametrize('flag', ['--peers=tensorflow', '--preset=digits', '--optimizer=sgd', '--data_dir=x'])
def test_command__refuses(flag: str, capsys: Any) -> None:
    assert steps.main(['steps', flag]) == 2
    assert flag.partition('=')[0] in capsys.readouterr().err


@pytest.mark.program
@pytest.mark.parametrize(
    ('peer', 'size', 'parameters'),
    [
        # Inception v3's 21,768,352 trained numbers below the classifier, and one of 2,049 numbers per class. Images of
        # 75 pixels are too small for the auxiliary classifier.
        ('keras', 75, 21_768_352 + 2049 * 1001),
        ('ours', 75, 21_768_352 + 2049 * 1001),
        # With scales in the batch normalization, and the auxiliary classifier.
        ('torchvision', 299, 27_164_082),
    ],
)
def test_measure__takes_steps_of_the_whole_network(peer: str, size: int, parameters: int) -> None:
    version = '.'.join(tf.__version__.split('.')[:2])
    name = peer if peer == 'torchvision' else f'{peer}_{version}'
    pythons = environments.pythons_of([name], steps.PEERS, '.venv-peers/bin/python,.venv-frameworks/bin/python')
    if name not in pythons:
        pytest.skip(f'{steps.PEERS[name].library} is not installed ({steps.PEERS[name].how})')
    config = steps.training.with_steps(
        steps.Config(use_tpu=False, use_data='fake', train_batch_size=2, height=size, width=size), 1
    )
    found = steps.measure(name, pythons[name], config, 2)
    assert found.parameters == parameters
    assert len(found.step_ms) == len(found.cpu_ms) == 2
    assert min(found.cpu_ms) > 0 and max(found.cpu_ms) < 1.1 * len(os.sched_getaffinity(0)) * max(found.step_ms)
