"""Tests of the progress of training and evaluation, on a terminal and in a file."""

import io
import re
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from console import screen as screen_module
from console.screen import Screen
from inception_v3.config import Config
from inception_v3.run.hooks.progress import EvaluationProgress, TrainingProgress
from inception_v3.run.hooks.watchers import Step


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: Any) -> List[float]:
    """The time, in seconds."""
    now = [0.0]
    monkeypatch.setattr(screen_module.time, 'monotonic', lambda: now[0])
    return now


def config_of(steps: int, **changes: Any) -> Config:
    """A run of a number of steps of 64 images, which is not evaluated."""
    values = {'train_steps': steps, 'train_batch_size': 64, 'mode': 'train', 'use_tpu': False, 'accelerator': 'cpu'}
    return Config(**{**values, **changes})


def shown(stream: io.StringIO) -> str:
    """Returns the final content of a terminal, without erased lines."""
    return '\n'.join(line.rpartition('\r\x1b[K')[2] for line in stream.getvalue().split('\n'))


def lines_of(
    caplog: Any,
    clock: List[float],
    begin: float,
    visits: Sequence[Tuple[float, int]],
    progress: TrainingProgress,
    first: int = 0,
    steps: int = 10,
) -> List[str]:
    """Runs a cycle that begins at a time and a step, and makes `visits`: times and steps. Returns its log."""
    caplog.clear()
    clock[0] = begin
    progress.graph_built()
    progress.session_began(None, first, begin)
    for clock[0], step in visits:
        progress.step_done(None, Step(step, 1.5, clock[0]))
    progress.session_ended()
    prepared, *others = [record.getMessage() for record in caplog.records]
    assert prepared == f'preparing to train, {steps:,} steps in all'
    # The time of day.
    return [re.sub(r'\b\d\d:\d\d:\d\d\b', 'NOW', line) for line in others]


def test_training_progress__shows_step_loss_speed_and_time_left(monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_LIVE_INTERVAL', 0)
    stream = Terminal()
    progress = TrainingProgress(Screen(stream), config_of(10))
    # The session was lost after step 3, and restored from the checkpoint of step 1.
    for time, step in ((1.0, 1), (2.0, 3), (9.0, 1), (10.0, 2)):
        progress.step_done(None, Step(step, 1.5, time))
    # 0.95 * 128 + 0.05 * 64 images/s for 8 * 64 images.
    assert shown(stream) == 'step 2 of 10, loss 1.5000, 124.8 images/s, 0:04 left'
    # 3 steps in 2 seconds. The steps of another cycle count, too, except for its first one.
    assert progress.images_per_second == 3 * 64 / 2
    progress.graph_built()
    for time, step in ((20.0, 3), (22.0, 4)):
        progress.step_done(None, Step(step, 1.5, time))
    assert progress.images_per_second == 4 * 64 / 4
    progress.session_ended()


@pytest.mark.parametrize(
    ('steps', 'logged'),
    [
        (1, [(1, False)]),
        (2, [(2, True)]),
        (10, [(2, True), (10, True)]),
        (40, [(2, True), (17, True), (32, True), (40, True)]),
    ],
)
def test_training_progress__logs_a_rate_and_the_last_step(
    steps: int, logged: List[Tuple[int, bool]], clock: List[float], caplog: Any
) -> None:
    progress = TrainingProgress(Screen(io.StringIO()), config_of(100))
    lines = lines_of(caplog, clock, 0, [(step, step) for step in range(1, steps + 1)], progress, steps=100)
    assert [(int(re.findall(r'step (\d+) of 100', line)[0]), line.endswith(' left')) for line in lines] == logged


def test_training_progress__groups_digits_as_all_numbers_of_the_log(clock: List[float], caplog: Any) -> None:
    no_lines: Dict[str, Any] = {}
    for changes in (no_lines, {'log_steps': 1, 'num_train_images': 10**6}):
        progress = TrainingProgress(Screen(io.StringIO()), config_of(2500, **changes))
        (line,) = lines_of(caplog, clock, 0, [(1, 1012)], progress, 1011, 2500)
        assert 'step 1,012 of 2,500' in line


def test_training_progress__keeps_the_last_line_of_a_cycle_on_a_terminal(caplog: Any) -> None:
    progress = TrainingProgress(Screen(Terminal()), config_of(10))
    progress.step_done(None, Step(4, 1.25, 0.0))
    progress.session_ended()
    assert [record.message for record in caplog.records] == ['step 4 of 10, loss 1.2500']


def lines_on(**changes: Any) -> TrainingProgress:
    """The progress of a run of ten steps, with a line for each step."""
    return TrainingProgress(Screen(io.StringIO()), config_of(10, **{'log_steps': 1, **changes}))


def test_step_lines__show_the_rates_computed_by_hand(clock: List[float], caplog: Any) -> None:
    step_lines = lines_on(num_shards=2, use_tpu=True, num_train_images=160)
    # 64 images per step on 2 cores. The last rate of both is 0.95 * 64 + 0.05 * 32. Step 3 completes the epoch of 160
    # images.
    assert lines_of(caplog, clock, 10, [(12, 1), (13, 2), (15, 3)], step_lines) == [
        '| Training Device=TPU:0 Epoch=1 Step=1 Loss=1.50000 Rate=16.00 GlobalRate=16.00 Time=NOW | step 1 of 10',
        '| Training Device=TPU:0 Epoch=1 Step=2 Loss=1.50000 Rate=32.00 GlobalRate=21.33 Time=NOW | step 2 of 10, '
        '64.0 images/s, 0:08 left',
        '| Training Device=TPU:0 Epoch=1 Step=3 Loss=1.50000 Rate=31.20 GlobalRate=19.20 Time=NOW | step 3 of 10, '
        '62.4 images/s, 0:07 left',
        'Epoch 1 train end NOW, Epoch Time=0:00:05, Replica Train Samples=96, Reduced GlobalRate=38.40 | '
        '5.0 s, 192 images on 2 cores',
    ]
    # After an evaluation of 85 seconds. Step 5 ends the second epoch: 320 images.
    assert lines_of(caplog, clock, 100, [(101, 4), (101.5, 5)], step_lines) == [
        '| Training Device=TPU:0 Epoch=2 Step=1 Loss=1.50000 Rate=32.00 GlobalRate=32.00 Time=NOW | step 4 of 10',
        '| Training Device=TPU:0 Epoch=2 Step=2 Loss=1.50000 Rate=64.00 GlobalRate=42.67 Time=NOW | step 5 of 10, '
        '128.0 images/s, 0:03 left',
        'Epoch 2 train end NOW, Epoch Time=0:00:01, Replica Train Samples=64, Reduced GlobalRate=85.33 | '
        '1.5 s, 128 images on 2 cores',
    ]


def test_step_lines__continue_an_epoch_after_an_evaluation(clock: List[float], caplog: Any) -> None:
    # A command that resumes from step 4, in the second epoch; an epoch has 192 images, or 3 steps.
    step_lines = lines_on(num_train_images=192)
    lines_of(caplog, clock, 0, [(2, 5)], step_lines, first=4)
    assert lines_of(caplog, clock, 50, [(51, 6)], step_lines, first=5) == [
        '| Training Device=CPU:0 Epoch=2 Step=3 Loss=1.50000 Rate=42.67 GlobalRate=42.67 Time=NOW | step 6 of 10',
        'Epoch 2 train end NOW, Epoch Time=0:00:03, Replica Train Samples=128, Reduced GlobalRate=42.67 | '
        '3.0 s, 128 images on 1 core',
    ]


def test_step_lines__name_all_epochs_that_end_in_a_loop(clock: List[float], caplog: Any) -> None:
    step_lines = lines_on(use_tpu=True, num_train_images=60)
    assert lines_of(caplog, clock, 0, [(2, 3)], step_lines)[-1] == (
        'Epochs 1 to 3 train end NOW, Epoch Time=0:00:02, Replica Train Samples=24, Reduced GlobalRate=96.00 | '
        '2.0 s, 192 images on 8 cores'
    )


def test_step_lines__come_at_multiples_and_the_end_and_count_repetitions(clock: List[float], caplog: Any) -> None:
    step_lines = lines_on(num_train_images=6400, log_steps=4)
    # 4 is a multiple, 9 is the first step read after the multiple 8, and 10 is the last. After step 7, the session was
    # restored from the checkpoint of step 5: 10 + 2 steps in 8 seconds.
    lines = lines_of(caplog, clock, 0, [(n, step) for n, step in enumerate((1, 3, 4, 7, 5, 7, 9, 10), 1)], step_lines)
    assert [re.findall(r'step (\d+) of', line) for line in lines] == [['4'], ['9'], ['10']]
    assert f'GlobalRate={12 * 64 / 8:.2f} ' in lines[-1]


def test_evaluation_progress__counts_the_batches(monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_LIVE_INTERVAL', 0)
    stream = Terminal()
    progress = EvaluationProgress(Screen(stream), 5)
    for number in (1, 2):
        progress.after_run(None, None)
        assert shown(stream) == f'evaluating: batch {number} of 5'
    progress.end(None)
    assert shown(stream) == ''
