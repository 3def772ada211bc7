"""The study of RevNet's memory: usage of a process, the search for the largest batch, tables, figures, the command."""

import io
import json
import pathlib
import re
import sys
from typing import Any, Dict, List, Optional
from unittest import mock

import numpy as np
import PIL.Image
import pytest

from benchmarks.drawing import sign_of
from benchmarks.measurement import MeasurementError
from inception_v3.networks.registry import NETWORKS
from studies.revnet_memory import __main__ as revnet_memory
from studies.revnet_memory import training as revnet_training
from studies.revnet_memory.measurement import (
    AS_PUBLISHED,
    OutOfMemoryError,
    Training,
    Watched,
    largest_batch,
    measure,
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
        ('import os; os.kill(os.getpid(), 9)', MeasurementError, 'ended by signal 9'),
        ('print("no mark"); sys.exit(4)', MeasurementError, 'exit code 4'),
        # Memory goes back to the system when it is freed.
        ('import os; sys.exit(os.environ["TF_CPU_ALLOCATOR_USE_BFC"])', MeasurementError, '^0$'),
        ('kept = bytearray(b"1") * 450_000_000; time.sleep(60)', OutOfMemoryError, 'more than 400 MB'),
    ],
)
def test_until_mark__names_the_reason_of_a_failure(watched: Watched, line: str, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        watched.until_mark(line)


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
    revnet_training.train(Training('revnet38', units, 16, 32, is_reversible), 'folder')
    (architecture,) = NETWORKS['revnet38'].build.args  # type: ignore[attr-defined]
    assert architecture == network.build.args[0]._replace(units=(units or 3,) * 3)
    config = made.call_args[0][0]
    assert (config.network, config.optimizer, config.moving_average) == ('revnet38', 'momentum', False)
    assert config.rebuild_activations is is_reversible
    assert (config.train_batch_size, config.height, config.width, config.num_classes) == (16, 32, 32, 11)
    assert (config.use_tpu, config.use_data, config.mode, config.model_dir) == (False, 'fake', 'train', 'folder')


def test_marks__are_made_before_the_first_step_and_after_each_number_of_steps(monkeypatch: Any) -> None:
    stop = mock.Mock(side_effect=[2, 1, 3, 9])
    monkeypatch.setattr(revnet_training, '_stop', stop)
    hook: Any = revnet_training._Marks()
    hook.after_create_session(None, None)
    marks = [stop.call_count for _ in range(7) if hook.after_run(None, None) is None]
    assert marks == [1, 2, 3, 3, 3, 4, 4]


@pytest.mark.program
def test_measure__records_failures_and_continues() -> None:
    # Too small for the network: the training process itself refuses the size.
    pair = [Training('revnet38', 1, 2, 3, is_reversible) for is_reversible in (False, True)]
    failed: Dict[str, str] = {}
    assert measure(pair, 1, 1, failed) == [] and [*failed] == [*map(str, pair)]
    assert all('must be at least' in reason for reason in failed.values())


@pytest.mark.parametrize('of_an_image_mb', [0.2, 7.3, 240.0, 601.0])
@pytest.mark.parametrize('first', [1, 8, 64])
def test_largest_batch__is_found_to_a_sixteenth(of_an_image_mb: float, first: int) -> None:
    def peak_of(batch_size: int) -> Optional[float]:
        peak = 400 + of_an_image_mb * batch_size
        return peak if peak <= 1000 else None

    found = largest_batch(peak_of, first)
    fits, too_many, tries = found['fits'], found['too_many'], dict(found['tries'])
    assert fits <= 600 / of_an_image_mb < too_many
    assert too_many - fits <= max(1, fits / 16)
    assert tries.get(fits, 400) == pytest.approx(400 + of_an_image_mb * fits)
    assert tries[too_many] is None and len(found['tries']) == len(tries) <= 17


# Tables and figures.


def row(units: int, batch: int, is_reversible: bool, step_mb: float, cpu: List[float], held_mb: float = 300) -> Any:
    memory = {'start_mb': 250, 'held_mb': held_mb, 'step_mb': step_mb, 'peak_mb': held_mb + step_mb}
    time = {'steps': 2, 'cpu_seconds': cpu, 'seconds': [0.6 * each for each in cpu]}
    return {**Training('revnet38', units, batch, 32, is_reversible)._asdict(), **memory, **time}


# Batches of 16: two depths with two rounds each. Batches of 32: one depth, whose plain training failed.
FOUND: Dict[str, Any] = {
    'measurements': [
        row(8, 16, False, 810, [10.0, 10.0], 335),
        row(1, 16, False, 105, [1.0, 2.0]),
        row(1, 16, True, 90, [1.1, 2.6]),
        row(8, 16, True, 97, [12.0, 12.6], 342),
        row(8, 32, True, 190, [24.0]),
    ],
    'largest': [
        {
            **{'memory_mb': 1000.0, 'units': 8, 'is_reversible': True, 'fits': 300, 'too_many': 310},
            'tries': [[8, 400.0], [16, 420.5], [300, 990.0], [310, None]],
        }
    ],
    'failed': {'plain, 8 blocks a stage, batches of 32': 'ended by signal 9'},
}


def test_tables__have_medians_overheads_within_a_round_and_slopes_between_the_end_points() -> None:
    steps, slopes, largest, failed = (['|'.join(row) for row in table.rows] for table in revnet_memory.tables_of(FOUND))
    # Overheads: 1.1 / 1.0 and 2.6 / 2.0; 12 / 10 and 12.6 / 10.
    assert steps == [
        '16|1|105|90|405|390|1.50|1.85|+20 % (+10 to +30)|0.90|1.11',
        '16|8|810|97|1,145|439|10.00|12.30|+23 % (+20 to +26)|6.00|7.38',
        '32|8|–|190|–|490|–|24.00|–|–|14.40',
    ]
    # (810 - 105) / 7, 7 / 7, 35 / 7 and 42 / 7.
    assert slopes == ['16|100.71|1.00|5.00|6.00|+22 % (+20 to +23)']
    assert largest == ['1 GB|8|reversible|300|310|8: 400, 16: 420, 300: 990, 310: more']
    assert failed == ['plain, 8 blocks a stage, batches of 32|ended by signal 9']


def check_picture(content: bytes) -> None:
    pixels = np.asarray(PIL.Image.open(io.BytesIO(content)).convert('RGB'))
    for index in range(2):
        rgb = [int(sign_of(index).light[place : place + 2], 16) for place in (1, 3, 5)]
        assert (pixels == rgb).all(-1).sum() > 50
    assert 0.7 < (pixels == 255).all(-1).mean() < 0.99


def run(out: pathlib.Path, *flags: str) -> int:
    return revnet_memory.main([f'--out={out}', *flags])


def test_command__resumes_keeps_what_it_has_and_refuses_other_settings(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    asked: List[Training] = []

    def measured(trainings: List[Training], steps: int, repeats: int, failed: Dict[str, str]) -> List[Any]:
        asked.extend(trainings)
        # The plain training fails at first.
        if len(trainings) == 2:
            failed[str(trainings.pop(0))] = 'ended by signal 9'
        return [row(each.units, each.batch_size, each.is_reversible, 9, [1.0]) for each in trainings]

    monkeypatch.setattr(revnet_memory, 'measure', measured)
    monkeypatch.setattr(
        revnet_memory, 'memory_of_iterations', lambda training, count, limit: {'peak_mb': [9.0 * training.batch_size]}
    )
    monkeypatch.setattr(revnet_memory, 'largest_batch', lambda peak_of, first: {'peak': peak_of(first), **LARGEST})
    flags = ['--units=1,4', '--batch_sizes=16,32']
    for code, missing in ((1, 8), (0, 4), (0, 0)):
        del asked[:]
        assert (run(tmp_path, *flags), len(asked)) == (code, missing)
    content = json.loads((tmp_path / 'revnet_memory.json').read_text(encoding='utf-8'))
    assert [search['peak'] for search in content['largest']] == [72.0, 72.0]
    assert content['largest'][1]['is_reversible'] and content['published_overhead'] == 0.25
    check_picture((tmp_path / 'revnet_memory.png').read_bytes())
    markdown = (tmp_path / 'revnet_memory.md').read_text(encoding='utf-8')
    assert '(revnet_memory.png)' in markdown and '| 1 GB | 8 | plain | 3 | 4 | 3: 8 |' in markdown
    assert 'Published: +25 %.' in markdown and 'Published: +25 %.' in capsys.readouterr().out
    for name, value in (('size', 64), ('source', 'abc')):
        changed = {**content, 'settings': {**content['settings'], name: value}}
        (tmp_path / 'revnet_memory.json').write_text(json.dumps(changed), encoding='utf-8')
        assert run(tmp_path, *flags) == 2
        assert re.search(f'cannot resume: {name} was {value}, and is .* Name another', capsys.readouterr().err)


LARGEST = {'fits': 3, 'too_many': 4, 'tries': [[3, 8.0]]}


@pytest.mark.parametrize(
    'argument, message',
    [
        ('--out=', '--out'),
        ('--units=1,0', '--units'),
        ('--batch_sizes=', '--batch_sizes'),
        ('--memory_gb=-1', '--memory_gb'),
        ('--seed=3', '--seed'),
        ('--size=3', 'error: --size=3: must be at least 4 with --network=revnet38.\n'),
        ('--iterations=3', '--iterations: only with --architecture=published. Leave it out, or choose that.'),
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

OTHERS = (('held_mb', 1.0), ('seconds', 2.0))


def test_published__halves_the_batch_until_it_fits_resumes_and_draws_both(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr('inception_v3.run.memory.available_memory', lambda: 20 * GB)
    failures = [MeasurementError('ended by signal 9')]

    def trainings(code: int, *flags: str) -> List[Training]:
        made: List[Training] = []

        def measured(training: Training, iterations: int, limit: int) -> Dict[str, List[float]]:
            made.append(training)
            # Ordinary training needs 1.2 GB an image, reversible 0.1 GB.
            peak = training.batch_size * (0.1 if training.is_reversible else 1.2) * GB
            if training.is_reversible and failures:
                raise failures.pop()
            if peak > limit:
                raise OutOfMemoryError('more')
            return {name: [value] * iterations for name, value in (('peak_mb', peak / MB), *OTHERS)}

        monkeypatch.setattr(revnet_memory, 'memory_of_iterations', measured)
        assert run(tmp_path, '--architecture=published', '--iterations=3', *flags) == code
        return made

    plain = Training('revnet104', AS_PUBLISHED, 8, 224, is_reversible=False)
    reversible = plain._replace(is_reversible=True)
    # 18 GB may be used.
    larger = [plain._replace(batch_size=size) for size in (128, 64, 32, 16)]
    assert trainings(1) == [*larger, plain, reversible]
    assert 'ended by signal 9' in capsys.readouterr().out
    assert trainings(0) == [reversible]
    found = json.loads((tmp_path / 'published.json').read_text(encoding='utf-8'))
    assert found['batch'] == 8
    assert {name: curve['peak_mb'] for name, curve in found['curves'].items()} == {
        'plain': [9600.0] * 3,
        'reversible': [800.0] * 3,
    }
    shown = capsys.readouterr().out
    assert 'revnet104 at 224 pixels, batches of 8 (the largest that fits, up to 128)' in shown and '9,600' in shown
    assert '| plain | 9,600 |' in (tmp_path / 'published.md').read_text(encoding='utf-8')
    check_picture((tmp_path / 'published.png').read_bytes())
    assert trainings(2, '--batch_size=4') == []
    assert 'batch_size was None, and is 4 now. Name another folder with --out' in capsys.readouterr().err


@pytest.mark.slow
def test_memory__grows_with_depth_only_if_activations_are_kept(tmp_path: pathlib.Path, capsys: Any) -> None:
    command = ['--units=1,3', '--batch_sizes=16', '--repeats=1', '--steps=1', '--memory_gb=0']
    assert run(tmp_path, *command) == 0
    shown = capsys.readouterr().out
    assert 'Cost of one more block in each stage' in shown and 'overhead' in shown
    content = json.loads((tmp_path / 'revnet_memory.json').read_text(encoding='utf-8'))
    assert len(content['measurements']) == 4 and not content['failed']
    step_mb = {(each['units'], each['is_reversible']): each['step_mb'] for each in content['measurements']}
    plain, reversible = (step_mb[3, is_reversible] - step_mb[1, is_reversible] for is_reversible in (False, True))
    # Two more blocks in a stage of 32 x 32 x 32 hold at least 6 tensors of 16 images each.
    assert plain > 2 * 6 * 16 * 32 * 32 * 32 * 4 / 2 / MB
    assert abs(reversible) < plain / 4
