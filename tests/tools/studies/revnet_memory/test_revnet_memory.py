"""The study of RevNet's memory: usage of a process, tables, figures, the command."""

import io
import json
import pathlib
import sys
from typing import Any, Dict, List
from unittest import mock

import numpy as np
import PIL.Image
import pytest

from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38
from tools.benchmarks.measurement import MeasurementError
from tools.studies.drawing import sign_of
from tools.studies.revnet_memory import __main__ as revnet_memory
from tools.studies.revnet_memory import measurement
from tools.studies.revnet_memory import training as revnet_training
from tools.studies.revnet_memory.measurement import (
    AS_PUBLISHED,
    OutOfMemoryError,
    Training,
    Watched,
    _memory_of,
    measure,
    memory_of_iterations,
)

MB, GB = 10**6, 10**9

# A process that stops at marks, and executes a line of Python between them.
EXECUTING = """
import sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
while True:
    exec(sys.stdin.readline())
    print('mark', flush=True)
"""


@pytest.fixture
def watched() -> Any:
    with Watched([sys.executable, '-c', EXECUTING], limit=400 * MB) as process:
        yield process


@pytest.mark.program
def test_usage__is_that_of_the_process(watched: Watched) -> None:
    begun = watched.until_mark('')
    freed = watched.until_mark('kept = bytearray(b"1") * 200_000_000; del kept')
    assert freed.peak - begun.resident == pytest.approx(200 * MB, rel=0.03)
    # Freed memory went back to the system.
    assert abs(freed.resident - begun.resident) < 6 * MB
    watched.reset_peak()
    held = watched.until_mark('kept = bytearray(b"1") * 50_000_000')
    assert held.peak - begun.resident == pytest.approx(50 * MB, rel=0.1)
    assert held.resident - begun.resident == pytest.approx(50 * MB, rel=0.1)
    worked = watched.until_mark('burn(0.3)')
    slept = watched.until_mark('time.sleep(0.3)')
    assert worked.cpu - held.cpu == pytest.approx(0.3, abs=0.04)
    assert slept.cpu - worked.cpu < 0.05
    assert slept.clock - worked.clock >= 0.3
    # Time in the kernel counts, too.
    watched.until_mark('import os; end = time.process_time() + 0.3')
    in_kernel = watched.until_mark('exec("while time.process_time() < end: os.urandom(1 << 20)")')
    assert in_kernel.cpu - slept.cpu == pytest.approx(0.3, abs=0.06)


@pytest.mark.program
@pytest.mark.parametrize(
    'line, kind, message',
    [
        ('sys.exit("the batch has no images")', MeasurementError, 'the batch has no images$'),
        ('print("no mark"); sys.exit(4)', MeasurementError, 'exit code 4'),
        # Memory goes back to the system when it is freed.
        ('import os; sys.exit(os.environ["TF_CPU_ALLOCATOR_USE_BFC"])', MeasurementError, '^0$'),
        ('kept = bytearray(b"1") * 450_000_000; time.sleep(60)', OutOfMemoryError, 'more than 400 MB'),
    ],
)
def test_until_mark__names_the_reason_of_a_failure(watched: Watched, line: str, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        watched.until_mark(line)


@pytest.mark.program
def test_memory__is_the_peak_of_one_step_alone(monkeypatch: Any) -> None:
    lines = [
        *('import sys', 'for size in (200, 50, 0):'),
        *('    kept = bytearray(b"1") * (size * 10**6)', '    del kept'),
        *('    print("mark", flush=True)', '    sys.stdin.readline()'),
    ]
    command = [sys.executable, '-c', '\n'.join(lines)]
    with Watched(command) as process:
        assert _memory_of(process)['step_mb'] == pytest.approx(50, rel=0.1)
    monkeypatch.setattr(measurement, '_started', lambda training, limit: Watched(command, limit))
    curve = memory_of_iterations(Training('revnet38', 1, 1, False), 2, None)
    peaks = [peak - held for peak, held in zip(curve['peak_mb'], curve['held_mb'])]
    assert peaks == [pytest.approx(50, rel=0.1), pytest.approx(0, abs=3)]


@pytest.mark.program
def test_measure__gives_the_cpu_time_of_one_step(monkeypatch: Any) -> None:
    lines = [
        *('import sys, time', 'line = "0"'),
        *('while True:', '    end = time.process_time() + 0.05 * int(line.split()[0])'),
        *(
            '    while time.process_time() < end: pass',
            '    print("mark", flush=True)',
            '    line = sys.stdin.readline()',
        ),
    ]
    command = [sys.executable, '-c', '\n'.join(lines)]
    monkeypatch.setattr(measurement, '_started', lambda training: Watched(command))
    monkeypatch.setattr(measurement, '_SHORTEST_ROUND', 0.3)
    (measured,) = measure([Training('revnet38', 1, 1, False)], 2)
    # The kernel counts in hundredths of a second.
    assert measured['cpu_seconds'] == [pytest.approx(0.05, abs=0.015)] * 2


# The training.


@pytest.mark.parametrize('units', [AS_PUBLISHED, 1])
@pytest.mark.parametrize('is_reversible', [False, True])
def test_train__has_the_settings_of_the_paper_but_for_the_depth(
    units: int, is_reversible: bool, monkeypatch: Any
) -> None:
    network: Any = NETWORKS['revnet38']
    monkeypatch.setitem(NETWORKS, 'revnet38', network)
    made = mock.Mock()
    monkeypatch.setattr(revnet_training, 'make_estimator', made)
    revnet_training.train(Training('revnet38', units, 16, is_reversible), 'folder')
    if units == AS_PUBLISHED:
        assert NETWORKS['revnet38'] is network
    else:
        assert NETWORKS['revnet38'].build.args == (REVNET_38._replace(units=(units,) * 3),)  # type: ignore[attr-defined]
    config = made.call_args[0][0]
    assert (config.network, config.optimizer, config.moving_average) == ('revnet38', 'momentum', False)
    assert config.rebuild_activations is is_reversible
    assert (config.train_batch_size, config.height, config.width, config.num_classes) == (16, 32, 32, 11)
    assert (config.use_tpu, config.use_data, config.mode, config.model_dir) == (False, 'fake', 'train', 'folder')


def test_marks__are_made_before_the_first_step_and_every_few_steps(monkeypatch: Any) -> None:
    stop = mock.Mock(side_effect=[2, 1, 3, 9])
    monkeypatch.setattr(revnet_training, '_stop', stop)
    hook: Any = revnet_training._Marks()
    hook.after_create_session(None, None)
    marks = [stop.call_count for _ in range(7) if hook.after_run(None, None) is None]
    assert marks == [1, 2, 3, 3, 3, 4, 4]


@pytest.mark.program
def test_measure__names_the_training_that_failed() -> None:
    pair = [Training('revnet38', 1, size, is_reversible=False) for size in (1, -2)]
    with pytest.raises(MeasurementError, match='plain, 1 blocks a stage, batches of -2: '):
        measure(pair, 1)


# Tables and figures.


def row(units: int, batch: int, is_reversible: bool, step_mb: float, cpu: List[float], held_mb: float = 300) -> Any:
    measured = {'held_mb': held_mb, 'step_mb': step_mb, 'cpu_seconds': cpu}
    return {**Training('revnet38', units, batch, is_reversible)._asdict(), **measured}


def test_tables__have_medians_and_overheads_within_a_round() -> None:
    measured = [
        row(1, 16, False, 105, [1.0, 2.0]),
        row(1, 16, True, 90, [1.1, 2.6]),
        row(1, 32, False, 211, [20.0]),
        row(1, 32, True, 190, [24.0]),
        row(8, 16, False, 1810, [10.0, 10.0], 335),
        row(8, 16, True, 97, [12.0, 12.6], 342),
    ]
    steps, failed = revnet_memory.tables_of(measured, {'8 blocks a stage, batches of 32': 'ended by signal 9'})
    # Overheads: 1.1 / 1.0 and 2.6 / 2.0; 12 / 10 and 12.6 / 10.
    assert ['|'.join(cells) for cells in steps.rows] == [
        '16|1|105|90|300|300|1.50|1.85|+20 % (+10 to +30)',
        '16|8|1,810|97|335|342|10.00|12.30|+23 % (+20 to +26)',
        '32|1|211|190|300|300|20.00|24.00|+20 % (+20 to +20)',
    ]
    assert 'over all rows: +20 % (+20 to +23). Published: +25 %.' in steps.notes[1]
    assert failed.rows == [['8 blocks a stage, batches of 32', 'ended by signal 9']]


def test_figure__has_memory_and_time_of_each_batch_and_way_by_depth(monkeypatch: Any) -> None:
    drawn: List[Any] = []
    monkeypatch.setattr(revnet_memory, 'chart', lambda title, panels: drawn.extend(panels))
    deep, plain = row(8, 16, False, 1810, [10, 11, 13]), row(1, 16, False, 105, [1])
    revnet_memory.figure([deep, plain, row(1, 16, True, 90, [2])])
    memory, time = (panel.series for panel in drawn)
    of = {(label, units): found.median for label, values in memory.items() for units, found in values.items()}
    assert of == {('batch 16, plain', 1): 105, ('batch 16, plain', 8): 1810, ('batch 16, reversible', 1): 90}
    assert time['batch 16, plain'] == {1: (1, 1, 1), 8: (11, 10, 13)}


def check_picture(content: bytes) -> None:
    pixels = np.asarray(PIL.Image.open(io.BytesIO(content)).convert('RGB'))
    for index in range(2):
        rgb = [int(sign_of(index).light[place : place + 2], 16) for place in (1, 3, 5)]
        assert (pixels == rgb).all(-1).sum() > 50
    assert 0.7 < (pixels == 255).all(-1).mean() < 0.99


def run(out: pathlib.Path, *flags: str) -> int:
    return revnet_memory.main([f'--out={out}', *flags])


def test_command__measures_all_pairs_and_reports_failures(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    asked: List[Training] = []

    def measured(trainings: List[Training], repeats: int) -> List[Any]:
        asked.extend(trainings)
        if trainings[0][1:3] == (4, 32):
            raise MeasurementError('ended by signal 9')
        return [row(each.units, each.batch_size, each.is_reversible, 9, [1.0] * repeats) for each in trainings]

    monkeypatch.setattr(revnet_memory, 'measure', measured)
    assert run(tmp_path, '--units=1,4', '--batch_sizes=16,32') == 1
    assert asked == [
        Training('revnet38', *of, kind) for of in ((1, 16), (1, 32), (4, 16), (4, 32)) for kind in (False, True)
    ]
    content = json.loads((tmp_path / 'revnet_memory.json').read_text(encoding='utf-8'))
    assert [each['cpu_seconds'] for each in content['measurements']] == [[1.0] * 3] * 6
    assert content['failed'] == {'4 blocks a stage, batches of 32': 'ended by signal 9'}
    check_picture((tmp_path / 'revnet_memory.png').read_bytes())
    markdown = (tmp_path / 'revnet_memory.md').read_text(encoding='utf-8')
    assert '(revnet_memory.png)' in markdown and '| 16 | 4 | 9 | 9 | 300 | 300 | 1.00 | 1.00 |' in markdown
    assert 'Published: +25 %.' in markdown and 'Published: +25 %.' in capsys.readouterr().out


@pytest.mark.parametrize(
    'argument, message',
    [
        ('--out=', '--out'),
        ('--units=1,0', '--units'),
        ('--batch_sizes=', '--batch_sizes'),
        ('--seed=3', '--seed'),
        ('--iterations=3', '--iterations: only with --architecture=published'),
        ('--architecture=published --units=1', '--units: only with --architecture=varied'),
    ],
)
def test_command__refuses_wrong_arguments_before_it_measures(
    argument: str, message: str, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(revnet_memory, 'measure', None)
    monkeypatch.setattr(revnet_memory, 'memory_of_iterations', None)
    try:
        assert run(tmp_path, *argument.split()) == 2
    except SystemExit as ended:  # argparse
        assert ended.code == 2
    assert message in capsys.readouterr().err


# The published network.


def test_published__halves_the_batch_until_it_fits_and_draws_both(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    made: List[Training] = []

    def measured(training: Training, iterations: int, limit: int) -> Dict[str, List[float]]:
        made.append(training)
        # Plain training needs 1.2 GB an image, reversible training 0.1 GB.
        peak = training.batch_size * (0.1 if training.is_reversible else 1.2) * GB
        if peak > limit:
            raise OutOfMemoryError('more than fits')
        return {'peak_mb': [peak / MB] * iterations, 'held_mb': [1.0] * iterations}

    monkeypatch.setattr('inception_v3.run.memory.available_memory', lambda: 20 * GB)
    monkeypatch.setattr(revnet_memory, 'memory_of_iterations', measured)
    assert run(tmp_path, '--architecture=published', '--iterations=3') == 0
    # 18 GB may be used.
    plain = [Training('revnet104', AS_PUBLISHED, size, is_reversible=False) for size in (128, 64, 32, 16, 8)]
    assert made == [*plain, plain[-1]._replace(is_reversible=True)]
    found = json.loads((tmp_path / 'published.json').read_text(encoding='utf-8'))
    assert found['batch'] == 8
    assert {name: curve['peak_mb'] for name, curve in found['curves'].items()} == {
        'plain': [9600.0] * 3,
        'reversible': [800.0] * 3,
    }
    shown = capsys.readouterr().out
    assert '3 iterations in batches of 8 (the largest that fits, up to 128)' in shown and '9,600' in shown
    assert '| plain | 9,600 |' in (tmp_path / 'published.md').read_text(encoding='utf-8')
    check_picture((tmp_path / 'published.png').read_bytes())
    assert run(tmp_path, '--architecture=published', '--batch_size=32') == 1
    assert 'more than fits' in capsys.readouterr().err


@pytest.mark.nightly
def test_memory__grows_with_depth_only_if_activations_are_kept(tmp_path: pathlib.Path, capsys: Any) -> None:
    assert run(tmp_path, '--units=1,3', '--batch_sizes=16', '--repeats=1') == 0
    assert 'overhead' in capsys.readouterr().out
    content = json.loads((tmp_path / 'revnet_memory.json').read_text(encoding='utf-8'))
    assert len(content['measurements']) == 4 and not content['failed']
    step_mb = {(each['units'], each['is_reversible']): each['step_mb'] for each in content['measurements']}
    plain, reversible = (step_mb[3, is_reversible] - step_mb[1, is_reversible] for is_reversible in (False, True))
    # Two more blocks in a stage of 32 x 32 x 32 hold at least 6 tensors of 16 images each.
    assert plain > 2 * 6 * 16 * 32 * 32 * 32 * 4 / 2 / MB
    assert abs(reversible) < plain / 4
