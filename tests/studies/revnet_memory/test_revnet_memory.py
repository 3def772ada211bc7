"""The study of RevNet's memory: usage of a process, the search for the largest batch, tables, the command."""

import dataclasses
import io
import json
import pathlib
import re
import sys
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import PIL.Image
import pytest

from benchmarks.measurement import MeasurementError
from console.screen import Screen
from inception_v3.config import ConfigError
from studies.report.palette import sign_of
from studies.revnet_memory import __main__ as revnet_memory
from studies.revnet_memory import report
from studies.revnet_memory import training as revnet_training
from studies.revnet_memory.measurement import (
    Largest,
    Measurement,
    OutOfMemoryError,
    Training,
    Watched,
    config_of,
    largest_batch,
)
from studies.revnet_memory.report import Results, Search, from_json, rows_of, slope_of, to_dict

MB = 10**6

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
    with Watched([sys.executable, '-c', EXECUTING]) as process:
        yield process


# Usage of a process.


@pytest.mark.program
def test_usage__peak_counts_the_allocated_bytes(watched: Watched) -> None:
    begun = watched.until_mark('')
    freed = watched.until_mark('kept = bytearray(b"1") * 200_000_000; del kept')
    assert freed.peak - begun.resident == pytest.approx(200 * MB, rel=0.03)
    # Freed memory went back to the system.
    assert abs(freed.resident - begun.resident) < 6 * MB
    watched.reset_peak()
    held = watched.until_mark('kept = bytearray(b"1") * 50_000_000')
    assert held.peak - begun.resident == pytest.approx(50 * MB, rel=0.1)
    assert held.resident - begun.resident == pytest.approx(50 * MB, rel=0.1)


@pytest.mark.program
def test_usage__cpu_time_excludes_sleep(watched: Watched) -> None:
    begun = watched.until_mark('')
    worked = watched.until_mark('burn(0.3)')
    slept = watched.until_mark('time.sleep(0.3)')
    assert worked.cpu - begun.cpu == pytest.approx(0.3, abs=0.04)
    assert slept.cpu - worked.cpu < 0.05
    assert slept.clock - worked.clock >= 0.3
    # Time in the kernel counts, too.
    watched.until_mark('import os; end = time.process_time() + 0.3')
    in_kernel = watched.until_mark('exec("while time.process_time() < end: os.urandom(1 << 20)")')
    assert in_kernel.cpu - slept.cpu == pytest.approx(0.3, abs=0.06)


@pytest.mark.program
@pytest.mark.parametrize(
    'line, message',
    [
        ('sys.exit("the batch has no images")', 'the batch has no images$'),
        ('import os; os.kill(os.getpid(), 9)', 'ended by signal 9'),
        ('print("no mark"); sys.exit(4)', 'exit code 4'),
        # Memory goes back to the system when it is freed.
        ('import os; sys.exit(os.environ["TF_CPU_ALLOCATOR_USE_BFC"])', '^0$'),
    ],
)
def test_wait__failed_process_gives_its_last_message(watched: Watched, line: str, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        watched.until_mark(line)


@pytest.mark.program
def test_wait__ends_a_process_above_its_memory_limit() -> None:
    with Watched([sys.executable, '-c', EXECUTING], limit=100 * MB) as process:
        process.until_mark('kept = bytearray(b"1") * 50_000_000')
        with pytest.raises(OutOfMemoryError, match='more than 100 MB'):
            process.until_mark('more = bytearray(b"1") * 60_000_000; time.sleep(60)')


# The training.


def test_training__has_the_settings_of_the_paper() -> None:
    for is_reversible in (False, True):
        config = config_of(training(2, 16, is_reversible), 'folder')
        assert (config.network, config.optimizer, config.moving_average) == ('revnet38', 'momentum', False)
        assert config.rebuild_activations is is_reversible
        assert (config.train_batch_size, config.height, config.width, config.num_classes) == (16, 32, 32, 11)
        assert (config.use_tpu, config.use_data, config.mode, config.model_dir) == (False, 'fake', 'train', 'folder')


def test_marks__are_made_before_the_first_step_and_after_each_number_of_steps(monkeypatch: Any) -> None:
    answers = iter([2, 1, 3, 9])
    marks: List[int] = []
    steps: List[int] = []

    def stop() -> int:
        marks.append(len(steps))
        return next(answers)

    monkeypatch.setattr(revnet_training, '_stop', stop)
    hook: Any = revnet_training._Marks()
    hook.after_create_session(None, None)
    for step in range(7):
        steps.append(step)
        hook.after_run(None, None)
    assert marks == [0, 2, 3, 6]


# The search for the largest batch.


def memory(of_an_image_mb: float) -> Callable[[int], Optional[float]]:
    def peak_of(batch_size: int) -> Optional[float]:
        peak = 400 + of_an_image_mb * batch_size
        return peak if peak <= 1000 else None

    return peak_of


@pytest.mark.parametrize('of_an_image_mb', [0.2, 7.3, 240.0])
@pytest.mark.parametrize('first', [1, 8, 64])
def test_largest_batch__is_found_to_a_sixteenth(of_an_image_mb: float, first: int) -> None:
    found = largest_batch(memory(of_an_image_mb), first)
    assert found.fits <= 600 / of_an_image_mb < found.too_many
    assert found.too_many - found.fits <= max(1, found.fits / 16)
    assert found.tries[found.fits] == pytest.approx(400 + of_an_image_mb * found.fits)
    assert found.tries[found.too_many] is None
    assert len(found.tries) <= 17


def test_largest_batch__is_0_if_one_image_does_not_fit() -> None:
    assert largest_batch(memory(601), 8) == Largest(0, 1, {8: None, 4: None, 2: None, 1: None})


# The tables and the figure.


def training(units: int, batch_size: int, is_reversible: bool) -> Training:
    return Training('revnet38', units, batch_size, 32, is_reversible)


def measurement(step_mb: float, cpu_seconds: List[float], held_mb: float = 300) -> Measurement:
    return Measurement(250, held_mb, step_mb, held_mb + step_mb, 2, cpu_seconds, [0.6 * each for each in cpu_seconds])


@pytest.fixture
def results() -> Results:
    """Batches of 16: two depths with two rounds each. Batches of 32: one depth, whose plain training failed."""
    return Results(
        'revnet38',
        32,
        {
            training(1, 16, False): measurement(105, [1.0, 2.0]),
            training(1, 16, True): measurement(90, [1.1, 2.6]),
            training(8, 16, False): measurement(810, [10.0, 10.0], 335),
            training(8, 16, True): measurement(97, [12.0, 12.6], 342),
            training(8, 32, True): measurement(190, [24.0]),
        },
        {Search(1000.0, 8, True): Largest(300, 310, {8: 400.0, 16: 420.5, 300: 990.0, 310: None})},
        {'plain, 8 blocks a stage, batches of 32': 'ended by signal 9'},
    )


def test_rows__overhead_is_within_a_round_and_slopes_are_between_the_end_points(results: Results) -> None:
    least, deep, half = rows_of(results)
    assert (least.batch_size, least.units, half.batch_size, half.units) == (16, 1, 32, 8)
    # 1.1 / 1.0 and 2.6 / 2.0; 12 / 10 and 12.6 / 10.
    assert least.overhead and least.overhead == pytest.approx((0.2, 0.1, 0.3))
    assert deep.overhead and deep.overhead == pytest.approx((0.23, 0.2, 0.26))
    assert half.overhead is None and half.plain is None
    # (810 - 105) / 7 and (342 - 300) / 7.
    assert slope_of({1: least.plain, 8: deep.plain}, 'step_mb') == pytest.approx(705 / 7)
    assert slope_of({1: least.reversible, 8: deep.reversible}, 'held_mb') == pytest.approx(6)
    assert slope_of({1: least.plain, 8: None}, 'step_mb') is None


def test_markdown__has_all_tables(results: Results) -> None:
    lines = report.markdown(results, 'figure.png', ['How it was measured.']).splitlines()
    assert 'How it was measured.' in lines and any('(figure.png)' in line for line in lines)
    assert '| 16 | 1 | 105 | 90 | 405 | 390 | 1.50 | 1.85 | +20 % (+10 to +30) | 0.90 | 1.11 |' in lines
    assert '| 32 | 8 | – | 190 | – | 490 | – | 24.00 | – | – | 14.40 |' in lines
    assert '| 16 | 100.71 | 1.00 | 5.00 | 6.00 | +22 % (+20 to +23) |' in lines
    assert '| 1 GB | 8 | reversible | 300 | 310 | 8: 400, 16: 420, 300: 990, 310: more |' in lines
    assert '| plain, 8 blocks a stage, batches of 32 | ended by signal 9 |' in lines
    assert any('overhead: CPU' in line and 'Published: +25 %.' in line for line in lines)


def test_figure__has_all_series(results: Results) -> None:
    pixels = np.asarray(PIL.Image.open(io.BytesIO(report.figure(results))).convert('RGB'))
    for index in range(2):
        colour = sign_of(index).light
        rgb = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        assert (pixels == rgb).all(-1).sum() > 50, colour
    assert 0.7 < (pixels == 255).all(-1).mean() < 0.99


# Files and the command.


SETTINGS = revnet_memory.settings_of(revnet_memory._parser().parse_args(['--network=revnet38', '--size=32']))


def test_from_json__reads_results_back_without_failures(results: Results) -> None:
    read = from_json(json.dumps(to_dict(results, SETTINGS)), SETTINGS)
    assert read == dataclasses.replace(results, failed={})
    with pytest.raises(ConfigError, match='this study did not write the file'):
        from_json('{"settings": 1}', SETTINGS)


@pytest.mark.parametrize('name, before, now', [('size', 64, 32), ('source', 'abc', '[0-9a-f]{64}')])
def test_resume__refuses_measurements_with_other_settings(
    results: Results, tmp_path: pathlib.Path, capsys: Any, name: str, before: Any, now: Any
) -> None:
    text = json.dumps(to_dict(results, {**SETTINGS, name: before}))
    (tmp_path / 'revnet_memory.json').write_text(text, encoding='utf-8')
    assert revnet_memory.main([f'--out={tmp_path}']) == 2
    message = f'--out={tmp_path}: cannot resume from its revnet_memory.json: {name} was {before}, and is {now} now'
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    'argument',
    [
        '--out=',
        '--units=1,0',
        '--units=two',
        '--batch_sizes=',
        '--repeats=1.5',
        '--memory_gb=-1',
        '--size=3',
        '--seed=3',
    ],
)
@pytest.mark.parametrize('others', [[], ['--architecture=published']], ids=str)
def test_command__refuses_wrong_arguments_before_it_measures(
    argument: str, others: List[str], tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    for module, name in ((revnet_memory, 'measure'), (revnet_memory.published, 'memory_of_iterations')):
        monkeypatch.setattr(module, name, None)
    try:
        assert revnet_memory.main([f'--out={tmp_path}', argument, *others]) == 2
    except SystemExit as ended:  # argparse
        assert ended.code == 2
    # The program's configuration refuses the size, and names its own flags.
    assert argument.partition('=')[0] in capsys.readouterr().err.replace('--height=3', '--size')


@pytest.mark.program
def test_perform__records_failures_and_continues() -> None:
    # Too small for the network: the training process itself refuses the size.
    wrong = Training('revnet38', 1, 2, 3, is_reversible=False)
    found = Results('revnet38', 3)
    saved: List[Dict[str, str]] = []
    revnet_memory.perform([wrong], 1, 1, found, Screen(io.StringIO()), lambda: saved.append(dict(found.failed)))
    assert [*found.failed] == [str(wrong), str(wrong._replace(is_reversible=True))] and not found.measured
    assert all('must be at least' in reason for reason in found.failed.values())
    assert saved == [found.failed]


@pytest.mark.slow
def test_memory__grows_with_depth_only_if_activations_are_kept(tmp_path: pathlib.Path, capsys: Any) -> None:
    command = [f'--out={tmp_path}', '--units=1,4', '--batch_sizes=16', '--repeats=1', '--steps=1']
    assert revnet_memory.main([*command, '--memory_gb=0']) == 0
    shown = capsys.readouterr().out
    assert 'Cost of one more block in each stage' in shown and 'overhead' in shown
    content = json.loads((tmp_path / 'revnet_memory.json').read_text(encoding='utf-8'))
    assert len(content['measurements']) == 4 and not content['failed']
    step_mb = {(each['units'], each['is_reversible']): each['step_mb'] for each in content['measurements']}
    plain, reversible = (step_mb[4, is_reversible] - step_mb[1, is_reversible] for is_reversible in (False, True))
    # Three more blocks in a stage of 32 x 32 x 32 hold at least 6 tensors of 16 images each.
    assert plain > 3 * 6 * 16 * 32 * 32 * 32 * 4 / 2 / MB
    assert abs(reversible) < plain / 4
    # Earlier measurements are kept.
    before = (tmp_path / 'revnet_memory.json').read_text(encoding='utf-8')
    assert revnet_memory.main([*command, '--memory_gb=0']) == 0
    assert (tmp_path / 'revnet_memory.json').read_text(encoding='utf-8') == before
