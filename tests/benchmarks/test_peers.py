"""The comparisons with other libraries: their accounting, their tables, and the libraries that are installed."""

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, Dict, List

import numpy as np
import pytest

from benchmarks import photographs
from benchmarks.measurement import Measurement, MeasurementError
from benchmarks.peers import __main__ as peers
from benchmarks.peers import environments, meter, steps, torchvision
from benchmarks.peers.__main__ import WITH, WITHOUT
from benchmarks.peers.environments import ROOT, Subject
from benchmarks.peers.steps import Steps
from console.tensorflow_versions import tf

_CHILD = (
    'import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n'
    'memory = bytearray(b"x" * 50_000_000)\nprint(flush=True)\ninput()'
)
PYTHONS = '.venv-peers/bin/python,.venv-frameworks/bin/python'


def test_accounting__includes_child_processes() -> None:
    cpu, memory = meter.cpu_seconds(meter.family()), meter.memory_bytes([os.getpid()])
    with subprocess.Popen([sys.executable, '-c', _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()
        pids = meter.family()
        assert child.pid in pids
        assert 0.48 < meter.cpu_seconds(pids) - cpu < 1.5
        assert 50e6 < meter.memory_bytes(pids) - memory < 90e6
        child.stdin.close()


def test_measure__counts_images_after_the_warm_up() -> None:
    read = iter([np.full([4, 2], number) for number in range(20)])
    found = meter.measure(read, {'images': 18, 'batch_size': 4})
    assert found['images'] == 20
    # Two batches of warm-up, five that are measured, and three for the memory.
    assert (found['least'], next(read)[0, 0]) == (9, 10)


def test_timed__counts_the_steps_after_the_warm_up() -> None:
    taken: List[float] = []

    def step() -> None:
        taken.append(time.perf_counter())
        # Half of a step computes, and half waits. The third step is the first that is measured.
        end = time.process_time() + (0.1 if len(taken) > 2 else 0.5)
        while time.process_time() < end:
            pass
        time.sleep(0.1)

    found = meter.timed(step, 2, 2)
    assert len(taken) == 4
    for step_ms, cpu_ms in zip(found['step_ms'], found['cpu_ms']):
        assert 90 < cpu_ms < 150 < 190 < step_ms
    assert [len(values) for values in found.values()] == [2, 2]


def test_forever__yields_each_number_once_per_epoch() -> None:
    numbers = iter(torchvision.Forever(5))
    assert [sorted(next(numbers) for _ in range(5)) for _ in range(3)] == [[0, 1, 2, 3, 4]] * 3


def test_peers__are_shown_with_ratios_in_rounds(capsys: Any) -> None:
    results = {
        Subject('ours_1.15', WITH): [Measurement(9, 2.0, 500, 700), Measurement(9, 4.0, 300, 800)],
        Subject('dali', WITH): [Measurement(9, 3.0, 400, 600), Measurement(9, 8.0, 200, 600)],
        Subject('ours_1.15', WITHOUT): [Measurement(9, 2.0, 500, 700)],
    }
    names = ['ours_1.15', 'dali', 'webdataset']
    problems = {Subject('webdataset', kind): 'not installed: get it' for kind in (WITH, WITHOUT)}
    problems[Subject('dali', WITHOUT)] = 'failed: no memory'
    peers.show(names, results, problems, False, 128)
    lines = capsys.readouterr().out.splitlines()
    (dali,) = [line.split('  ') for line in lines if line.startswith('dali  ')]
    assert dali[-1].strip() == '1.75 (1.50–2.00)'
    assert lines[-2:] == ['webdataset: not installed: get it', 'dali: failed: no memory']
    peers.show(names, results, problems, True, 128)
    rows = json.loads(capsys.readouterr().out)['rows']
    assert rows[1]['cpu_ms'] == {'median': 5.5, 'least': 3.0, 'greatest': 8.0}
    assert (rows[4]['colour'], rows[5]['problem']) == (False, 'not installed: get it')


_OURS, _OTHERS = (27145970, 'X 1'), (27164082, 'Y 2')
MEASURED: Dict[Subject, List[Steps]] = {
    Subject('ours_1.15'): [Steps([4000, 8000], [6000, 8000], *_OURS), Steps([2000, 2000], [10000, 10000], *_OURS)],
    Subject('torchvision'): [
        Steps([8000, 8000], [14000, 14000], *_OTHERS),
        Steps([1000, 1000], [5000, 5000], *_OTHERS),
    ],
}


def test_steps__are_shown_with_medians_and_ratios_in_rounds(capsys: Any) -> None:
    config = steps.Config(train_batch_size=8)
    problems = {Subject('keras_2.15'): 'not installed: get it'}
    steps.show(MEASURED, problems, False, config)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith('training steps with 8 images of 299 x 299 pixels; on ')
    assert [' '.join(line.split()) for line in lines[-3:]] == [
        'ours_1.15 X 1 27,145,970 8.50 (7.00–10.00) 2.67 (1.33–4.00) 1.00 (1.00–1.00)',
        'torchvision Y 2 27,164,082 9.50 (5.00–14.00) 4.50 (1.00–8.00) 1.25 (0.50–2.00)',
        'keras_2.15: not installed: get it',
    ]
    steps.show(MEASURED, problems, True, config)
    found = json.loads(capsys.readouterr().out)
    assert found['rows'][1]['over_first'] == {'median': 1.25, 'least': 0.5, 'greatest': 2.0}
    assert found['problems'] == {'keras_2.15': 'not installed: get it'}


def test_steps__measures_what_is_installed_and_names_the_rest(monkeypatch: Any, capsys: Any) -> None:
    def measure(name: str, python: str, config: Any, count: int) -> Steps:
        assert (config.train_batch_size, config.use_tpu, config.use_data, config.train_steps) == (8, False, 'fake', 5)
        if name == 'torchvision':
            raise MeasurementError('no memory')
        return MEASURED[Subject('ours_1.15')][0]

    monkeypatch.setattr(steps, 'measure', measure)
    monkeypatch.setattr(environments, '_TENSORFLOW', {'1.15': 'one', '2.15': 'two'})
    monkeypatch.setattr(tf, '__version__', '1.15.5')
    tf2 = str(ROOT / 'two' / 'bin' / 'python')
    monkeypatch.setattr(environments, 'is_installed', lambda python, library: python != tf2)
    assert steps.main(['steps', '--steps=2', '--repeats=1', '--peers=keras_1.15,keras_2.15,torchvision', '--json']) == 1
    found = json.loads(capsys.readouterr().out)
    assert [row['program'] for row in found['rows']] == ['keras_1.15']
    assert found['problems'] == {
        'keras_2.15': 'not installed: ./run --tf=2.15 true',
        'torchvision': 'failed: no memory',
    }


@pytest.mark.parametrize('command', [peers.main, steps.main])
@pytest.mark.parametrize('flag', ['--peers=tensorflow', '--preset=digits', '--optimizer=sgd', '--data_dir=x'])
def test_command__refuses(command: Any, flag: str, capsys: Any) -> None:
    assert command(['peers', flag]) == 2
    assert flag.partition('=')[0] in capsys.readouterr().err


def test_pythons_of__are_the_first_that_have_the_library(tmp_path: Any) -> None:
    shipped = {'a': environments.Peer('json', 'x'), 'b': environments.Peer('nowhere', 'x')}
    shipped['c'] = environments.Peer('tensorflow', version='9.9')
    failing = tmp_path / 'python'
    failing.write_text('#!/bin/sh\nexit 1\n')
    failing.chmod(0o755)
    pythons = f'{tmp_path}/absent,{failing},{sys.executable},{sys.executable}-other'
    assert environments.pythons_of(['a', 'b'], shipped, pythons) == {'a': sys.executable}
    assert 'requirements.txt' in shipped['b'].how and shipped['c'].how == './run --tf=9.9 true'


def test_scripts__are_those_of_the_peers_and_need_nothing_else_of_this_program() -> None:
    scripts = {peer.script for peer in [*peers.PEERS.values(), *steps.PEERS.values()] if peer.script}
    folder = pathlib.Path(environments.__file__).parent
    assert scripts == {path.stem for path in folder.glob('*.py')} - {
        '__init__',
        '__main__',
        'environments',
        'meter',
        'steps',
    }
    # The environments of other libraries may have no TensorFlow.
    code = 'import sys; sys.modules["tensorflow"] = sys.modules["numpy"] = None\n'
    code += ''.join(f'import benchmarks.peers.{script}\n' for script in sorted(scripts - {'keras'}))
    subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)


@pytest.mark.program
def test_peers__are_measured_where_they_are_installed(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    data_dir = str(tmp_path / 'photographs')
    photographs.make(data_dir, train=16, validation=2, shards=2)
    monkeypatch.setattr(photographs, 'DATA_DIR', data_dir)
    # One pipeline of each kind: the others differ from these by a line.
    sizes = ['--images=8', '--train_batch_size=4', '--num_shards=1', '--height=75', '--width=75', '--repeats=1']
    names = '--peers=ours_tar_2.15,torchvision_tensors,webdataset,dali_fast'
    assert peers.main(['peers', names, f'--pythons={PYTHONS}', *sizes, '--json']) == 0
    pythons = environments.pythons_of([*peers.PEERS], peers.PEERS, PYTHONS)
    for row in json.loads(capsys.readouterr().out)['rows']:
        if row['pipeline'] in pythons:
            assert row['cpu_ms']['median'] > 0, row
        else:
            assert row['problem'] == f'not installed: {peers.PEERS[row["pipeline"]].how}'


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
def test_steps__are_those_of_the_whole_network(peer: str, size: int, parameters: int) -> None:
    version = '.'.join(tf.__version__.split('.')[:2])
    name = peer if peer == 'torchvision' else f'{peer}_{version}'
    pythons = environments.pythons_of([name], steps.PEERS, PYTHONS)
    if name not in pythons:
        pytest.skip(f'{steps.PEERS[name].library} is not installed ({steps.PEERS[name].how})')
    config = steps.training.with_steps(
        steps.Config(use_tpu=False, use_data='fake', train_batch_size=2, height=size, width=size), 1
    )
    found = steps.measure(name, pythons[name], config, 2)
    assert found.parameters == parameters
    assert len(found.step_ms) == len(found.cpu_ms) == 2
    assert min(found.cpu_ms) > 0 and max(found.cpu_ms) < 1.1 * len(os.sched_getaffinity(0)) * max(found.step_ms)
