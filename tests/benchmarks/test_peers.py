"""The benchmark of other libraries: its accounting, its table, and the libraries that are installed."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, List

import pytest

from benchmarks import photographs
from benchmarks.measurement import Measurement, MeasurementError
from benchmarks.peers import __main__ as peers
from benchmarks.peers import environments, meter, steps, torchvision_input
from benchmarks.peers.environments import ROOT

_CHILD = (
    'import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n'
    'memory = bytearray(b"x" * 50_000_000)\nprint(flush=True)\ninput()'
)


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
    import numpy as np

    read = iter([np.full([4, 2], number) for number in range(20)])
    found = meter.measure(read, {'images': 18, 'batch_size': 4})
    assert found['images'] == 20
    # Two batches of warm-up, five that are measured, and three for the memory.
    assert (found['least'], next(read)[0, 0]) == (9, 10)


def test_forever__yields_each_number_once_per_epoch() -> None:
    numbers = iter(torchvision_input.Forever(5))
    epochs = [sorted(next(numbers) for _ in range(5)) for _ in range(3)]
    assert epochs == [[0, 1, 2, 3, 4]] * 3


def test_show__has_ratios_in_rounds_and_rows_of_what_is_missing(capsys: Any) -> None:
    results = {
        ('ours_1.15', True): [Measurement(9, 2.0, 500, 700), Measurement(9, 4.0, 300, 800)],
        ('dali', True): [Measurement(9, 3.0, 400, 600), Measurement(9, 8.0, 200, 600)],
        ('ours_1.15', False): [Measurement(9, 2.0, 500, 700)],
    }
    names = ['ours_1.15', 'dali', 'webdataset']
    missing, failed = {'webdataset': 'get it'}, {('dali', False): 'no memory'}
    peers.show(names, results, missing, failed, False, 128)
    lines = capsys.readouterr().out.splitlines()
    (dali,) = [line.split('  ') for line in lines if line.startswith('dali  ')]
    assert dali[-1].strip() == '1.75 (1.50–2.00)'
    assert lines[-2:] == ['webdataset: not installed: get it', 'dali: failed: no memory']
    peers.show(names, results, missing, failed, True, 128)
    rows = json.loads(capsys.readouterr().out)['rows']
    assert rows[1]['cpu_ms'] == {'median': 5.5, 'least': 3.0, 'greatest': 8.0}
    assert rows[5]['problem'] == 'not installed: get it'


@pytest.mark.parametrize('flag', ['--peers=tensorflow', '--preset=digits', '--preprocessing=vgg', '--data_dir=x'])
def test_command__refuses(flag: str, capsys: Any) -> None:
    assert peers.main(['peers', flag]) == 2
    assert flag.partition('=')[0] in capsys.readouterr().err


def test_is_installed__asks_the_interpreter() -> None:
    assert environments.is_installed(sys.executable, 'json')
    assert not environments.is_installed(sys.executable, 'nowhere.at_all')
    assert not environments.is_installed('/nowhere/python', 'json')


def test_interleave__keeps_rounds_together_and_drops_what_fails(monkeypatch: Any) -> None:
    order: List[str] = []

    def measure(name: str) -> int:
        order.append(name)
        if (name, order.count(name)) == ('b', 2):
            raise MeasurementError('no memory')
        return len(order)

    told: List[str] = []
    found = environments.interleave('abc', 3, measure, lambda words, name: told.append(f'{words}: {name}'))
    assert order == [*'abcabcac']
    assert found == ({'a': [1, 4, 7], 'c': [3, 6, 8]}, {'b': 'no memory'})
    assert told[:4] == ['round 1 of 3: a', 'round 1 of 3: b', 'round 1 of 3: c', 'round 2 of 3: a']


def test_pythons_of__are_the_first_that_have_the_library(tmp_path: Any) -> None:
    shipped = {'a': environments.Peer('json', 'x'), 'b': environments.Peer('nowhere', 'x')}
    shipped['c'] = environments.Peer('tensorflow', version='9.9')
    failing = tmp_path / 'python'
    failing.write_text('#!/bin/sh\nexit 1\n')
    failing.chmod(0o755)
    pythons = f'{tmp_path}/absent,{failing},{sys.executable},{sys.executable}-other'
    assert environments.pythons_of(['a', 'b'], shipped, pythons) == {'a': sys.executable}
    assert 'requirements.txt' in shipped['b'].how and shipped['c'].how == './run --tf=9.9 true'


def test_call__returns_what_the_script_prints_last_or_its_last_error(tmp_path: Any, monkeypatch: Any) -> None:
    script = tmp_path / 'script.py'
    script.write_text(
        'import json, sys\nspec = json.load(open(sys.argv[1]))\nprint("a")\nprint([6 // spec["number"]])\n'
    )
    monkeypatch.setattr(environments.processes, 'module', lambda name, path: ['python', str(script), path])
    assert environments.call(sys.executable, 'dali_input', {'number': 2}) == [3]
    with pytest.raises(MeasurementError, match=r'^ZeroDivisionError: '):
        environments.call(sys.executable, 'dali_input', {'number': 0})


def test_scripts__are_those_of_the_peers_and_need_nothing_else_of_this_program() -> None:
    folder = pathlib.Path(environments.__file__).parent
    scripts = {peer.script for peer in [*peers.PEERS.values(), *steps.PEERS.values()] if peer.script}
    assert scripts == {path.stem for path in folder.glob('[a-z]*_*.py')}
    # The environments of other libraries may have no TensorFlow.
    code = 'import sys; sys.modules["tensorflow"] = sys.modules["numpy"] = None\n'
    code += ''.join(f'import benchmarks.peers.{script}\n' for script in sorted(scripts - {'keras_steps'}))
    subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)


@pytest.mark.program
def test_command__measures_what_is_installed(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    data_dir = str(tmp_path / 'photographs')
    photographs.make(data_dir, train=16, validation=2, shards=2)
    monkeypatch.setattr(photographs, 'DATA_DIR', data_dir)
    # One pipeline of each kind: the others differ from these by a line.
    flags = [
        '--peers=ours_tar_2.15,torchvision_tensors,webdataset,dali_fast',
        '--pythons=.venv-peers/bin/python,.venv-frameworks/bin/python',
        '--images=8',
        '--train_batch_size=4',
        '--num_shards=1',
        '--height=75',
        '--width=75',
        '--repeats=1',
        '--json',
    ]
    assert peers.main(['peers', *flags]) == 0
    pythons = environments.pythons_of([*peers.PEERS], peers.PEERS, '.venv-peers/bin/python,.venv-frameworks/bin/python')
    for row in json.loads(capsys.readouterr().out)['rows']:
        if row['pipeline'] in pythons:
            assert row['cpu_ms']['median'] > 0, row
        else:
            assert row['problem'] == f'not installed: {peers.PEERS[row["pipeline"]].how}'
