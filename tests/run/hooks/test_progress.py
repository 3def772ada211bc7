"""Tests of the progress line and the log, on a terminal and in a file."""

import io
import logging
import re
from typing import Any, List, Tuple

import pytest

from console import screen as screen_module
from console.log import logger
from console.screen import Screen, duration
from console.tensorflow_versions import tf
from inception_v3.run.hooks import progress as progress_module
from inception_v3.run.hooks import step as step_module
from inception_v3.run.hooks.progress import EvaluationProgress, StepLines, Throughput, TrainingProgress
from inception_v3.run.hooks.step import Step, StepHook
from tests.support.processes import wait_for


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    """Returns the final content of a terminal, without erased lines."""
    return '\n'.join(line.rpartition('\r\x1b[K')[2] for line in stream.getvalue().split('\n'))


def log(screen: Screen, text: str) -> None:
    screen.emit(logging.LogRecord('inception_v3', logging.INFO, '', 0, text, None, None))


def test_screen__redraws_one_line_below_the_log_on_a_terminal(monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_LIVE_INTERVAL', 0)
    stream = Terminal()
    screen = Screen(stream)
    screen.update('step 1')
    screen.update('step 2')
    assert shown(stream) == 'step 2'
    log(screen, 'checkpoint written')
    assert shown(stream) == 'checkpoint written\nstep 2'
    screen.clear()
    assert shown(stream) == 'checkpoint written\n'


def test_screen__truncates_a_line_to_the_width_of_the_terminal(monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_terminal_width', lambda stream: 10)
    stream = Terminal()
    Screen(stream).update('123456789012345')
    assert shown(stream) == '123456789'


def test_screen__logs_plain_lines_at_intervals_without_a_terminal(monkeypatch: Any, caplog: Any) -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    monkeypatch.setattr(logger, 'handlers', [screen])
    # A logger caches isEnabledFor; setLevel, which this calls, clears the cache.
    caplog.set_level(logging.INFO, logger.name)
    for step in range(100):
        screen.update(f'step {step}')
    assert stream.getvalue() == 'step 0\n'
    assert '\x1b' not in stream.getvalue()


def test_training_progress__shows_step_loss_speed_and_time_left(monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_LIVE_INTERVAL', 0)
    clock = iter([float(second) for second in range(100)])
    monkeypatch.setattr(step_module.time, 'monotonic', lambda: next(clock))
    stream, throughput = Terminal(), Throughput()
    step = tf.train.get_or_create_global_step()
    tf.losses.add_loss(tf.constant(1.5))
    hook = StepHook([TrainingProgress(Screen(stream), throughput, 10, batch_size=64)])
    advance = step.assign_add(1)
    with tf.train.SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(advance)
        line = shown(stream)
    match = re.fullmatch(r'step (\d+) of 10, loss 1\.5000, ([\d.]+) images/s, 0:(\d\d) left', line)
    assert match
    assert throughput.images == 2 * 64 and throughput.images_per_second
    assert throughput.images_per_second == pytest.approx(128 / throughput.seconds)
    assert float(match[2]) == pytest.approx(throughput.images_per_second, abs=0.1)
    assert int(match[3]) == round((10 - int(match[1])) * 64 / throughput.images_per_second)
    assert shown(stream) == ''


@pytest.mark.parametrize(
    ('steps', 'logged'),
    [
        (1, [(1, False)]),
        (2, [(2, True)]),
        (3, [(2, True), (3, True)]),
        (10, [(2, True), (10, True)]),
        (40, [(2, True), (17, True), (32, True), (40, True)]),
    ],
)
def test_training_progress__logs_a_rate_and_the_last_step_of_each_cycle(
    steps: int, logged: List[Tuple[int, bool]], monkeypatch: Any, caplog: Any
) -> None:
    caplog.set_level(logging.INFO, logger.name)
    now = 0.0
    monkeypatch.setattr(step_module.time, 'monotonic', lambda: now)
    screen = Screen(io.StringIO())
    step = tf.train.get_or_create_global_step()
    tf.losses.add_loss(tf.constant(1.5))
    with tf.Session() as session:
        for cycle in range(2):
            caplog.clear()
            hook = StepHook([TrainingProgress(screen, Throughput(), 100, 64)])
            hook.begin()
            context = tf.estimator.SessionRunContext(hook.before_run(None), session)
            for done in range(1, steps + 1):
                now += 1
                step.load(steps * cycle + done, session)
                hook.after_run(context, tf.estimator.SessionRunValues(1.5, None, None))
            hook.end(session)
            lines = [record.getMessage() for record in caplog.records]
            assert lines[0] == 'preparing to train, 100 steps in all'
            found = [(int(re.findall(r'step (\d+) of', line)[0]), line.endswith(' left')) for line in lines[1:]]
            assert [(done - steps * cycle, has_left) for done, has_left in found] == logged


@pytest.mark.parametrize(('seconds', 'text'), [(0, '0:00'), (59.6, '1:00'), (3599, '59:59'), (36061, '10:01:01')])
def test_duration__is_minutes_or_hours(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Clock:
    """Training with a simulated clock: the host reads the step at given times, in seconds."""

    def __init__(self, monkeypatch: Any, caplog: Any, step_lines: StepLines):
        caplog.set_level(logging.INFO, logger.name)
        self._caplog = caplog
        self._step_lines = step_lines
        self._now = 0.0
        monkeypatch.setattr(step_module.time, 'monotonic', lambda: self._now)

    def train(self, begin: float, visits: List[Tuple[float, int]]) -> List[str]:
        """Runs a cycle, and returns its log lines.

        Args:
          begin: the time at which the cycle begins.
          visits: each time at which the host reads the step, and the step that it reads.
        """
        self._caplog.clear()
        hook = StepHook([TrainingProgress(Screen(io.StringIO()), Throughput(), 10, 64, self._step_lines)])
        self._now = begin
        step = tf.train.get_or_create_global_step()
        tf.losses.add_loss(tf.constant(1.5))
        hook.begin()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            hook.after_create_session(session, None)
            context = tf.estimator.SessionRunContext(hook.before_run(None), session)
            for self._now, done in visits:
                step.load(done, session)
                hook.after_run(context, tf.estimator.SessionRunValues(1.5, None, None))
        return [r.getMessage() for r in self._caplog.records if not r.getMessage().startswith('preparing')]


def test_step_lines__show_the_rates_computed_by_hand(monkeypatch: Any, caplog: Any) -> None:
    clock = Clock(monkeypatch, caplog, StepLines('TPU:0', 2, batch_size=64, epoch_images=160, step=0))
    # 64 images per step on 2 cores. The last rate of both is 0.95 * 64 + 0.05 * 32. Step 3 completes the epoch of 160
    # images.
    assert clock.train(10, [(12, 1), (13, 2), (15, 3)]) == [
        'device TPU:0, epoch 1, step 1 of 10, loss 1.5000, GlobalRate 16.0 images/s per core',
        'device TPU:0, epoch 1, step 2 of 10, loss 1.5000, Rate 32.0, GlobalRate 21.3 images/s per core, '
        '64.0 images/s, 0:08 left',
        'device TPU:0, epoch 1, step 3 of 10, loss 1.5000, Rate 31.2, GlobalRate 19.2 images/s per core, '
        '62.4 images/s, 0:07 left',
        'epoch 1: time 5.0 s, 192 images (96 per replica), GlobalRate 38.4 images/s over 2 replicas together',
    ]
    # After an evaluation of 85 seconds. Step 5 ends the second epoch: 320 images.
    assert clock.train(100, [(101, 4), (101.5, 5)]) == [
        'device TPU:0, epoch 2, step 4 of 10, loss 1.5000, GlobalRate 32.0 images/s per core',
        'device TPU:0, epoch 2, step 5 of 10, loss 1.5000, Rate 64.0, GlobalRate 42.7 images/s per core, '
        '128.0 images/s, 0:03 left',
        'epoch 2: time 1.5 s, 128 images (64 per replica), GlobalRate 85.3 images/s over 2 replicas together',
    ]


def test_step_lines__continue_an_epoch_after_an_evaluation(monkeypatch: Any, caplog: Any) -> None:
    # A command that resumes from step 4, in the second epoch; an epoch has 192 images, or 3 steps.
    clock = Clock(monkeypatch, caplog, StepLines('CPU:0', 1, batch_size=64, epoch_images=192, step=4))
    assert clock.train(0, [(2, 5)]) == [
        'device CPU:0, epoch 2, step 5 of 10, loss 1.5000, GlobalRate 32.0 images/s per core'
    ]
    assert clock.train(50, [(51, 6)]) == [
        'device CPU:0, epoch 2, step 6 of 10, loss 1.5000, GlobalRate 42.7 images/s per core',
        'epoch 2: time 3.0 s, 128 images (128 per replica), GlobalRate 42.7 images/s over 1 replica together',
    ]


def test_step_lines__name_all_epochs_that_end_in_a_loop(monkeypatch: Any, caplog: Any) -> None:
    clock = Clock(monkeypatch, caplog, StepLines('TPU:0', 8, batch_size=64, epoch_images=60, step=0))
    assert clock.train(0, [(2, 3)])[-1] == (
        'epochs 1 to 3: time 2.0 s, 192 images (24 per replica), GlobalRate 96.0 images/s over 8 replicas together'
    )


def test_step_lines__come_at_multiples_and_at_the_end(monkeypatch: Any, caplog: Any) -> None:
    clock = Clock(monkeypatch, caplog, StepLines('CPU:0', 1, batch_size=64, epoch_images=6400, step=0, log_steps=4))
    # 4 is a multiple, 9 is the first step read after the multiple 8, and 10 is the last.
    lines = clock.train(0, [(step, step) for step in (1, 3, 4, 5, 7, 9, 10)])
    assert [re.findall(r'step (\d+) of', line) for line in lines] == [['4'], ['9'], ['10']]


def test_throughput__does_not_count_the_steps_that_a_lost_session_repeats_twice() -> None:
    throughput = Throughput()
    progress = TrainingProgress(Screen(io.StringIO()), throughput, 10, 64)
    # The session was lost after step 3, and restored from the checkpoint of step 1.
    for time, step in ((1.0, 1), (2.0, 3), (9.0, 1), (10.0, 2)):
        progress.step_done(None, Step(step, 1.5, time))
    assert (throughput.images, throughput.seconds) == (3 * 64, 2.0)


def test_evaluation_progress__counts_the_batches(monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_LIVE_INTERVAL', 0)
    stream = Terminal()
    progress = EvaluationProgress(Screen(stream), 5)
    for number in (1, 2):
        progress.after_run(None, None)
        assert shown(stream) == f'evaluating: batch {number} of 5'
    progress.end(None)
    assert shown(stream) == ''


def test_step_lines__count_repeated_steps_again(monkeypatch: Any, caplog: Any) -> None:
    clock = Clock(monkeypatch, caplog, StepLines('CPU:0', 1, batch_size=64, epoch_images=640, step=0))
    # The session was lost after step 3, and restored from the checkpoint of step 1: 3 + 1 steps in 4 seconds.
    lines = clock.train(0, [(1, 1), (2, 3), (3, 1), (4, 2)])
    assert 'step 2 of 10' in lines[-1] and 'GlobalRate 64.0 images/s' in lines[-1]


def test_throughput__estimates_the_seconds_outside_of_the_steps(monkeypatch: Any) -> None:
    now = 100.0
    monkeypatch.setattr(progress_module.time, 'monotonic', lambda: now)
    throughput = Throughput()
    without_tpu = Throughput(graphs_in_pause=1)
    for each in (throughput, without_tpu):
        each.cycle_began(130.0)
    # Before the first evaluation: two graphs for each evaluation, and one for the export.
    assert throughput.seconds_of_pauses(3, True) == 3 * 2 * 30 + 30
    assert without_tpu.seconds_of_pauses(3, True) == 3 * 30 + 30
    throughput.cycle_ended(200.0)
    throughput.cycle_began(245.0)
    assert throughput.seconds_of_pauses(2, False) == 2 * 45
    assert throughput.seconds_of_pauses(0, False) == 0


@pytest.mark.parametrize(('step', 'left'), [(2, 128), (5, 125), (6, 64), (10, 60)])
def test_training_progress__time_left_counts_evaluations(step: int, left: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(screen_module, '_LIVE_INTERVAL', 0)
    stream, throughput = Terminal(), Throughput()
    monkeypatch.setattr(throughput, 'seconds_of_pauses', lambda pauses, exports: 60 * pauses)
    progress = TrainingProgress(Screen(stream), throughput, 10, 64, steps_per_eval=5)
    progress.step_done(None, Step(step - 1, 1.0, 0.0))
    progress.step_done(None, Step(step, 1.0, 1.0))
    assert shown(stream).endswith(f', {duration(left)} left')


def test_training_progress__keeps_the_last_line_of_a_cycle_on_a_terminal(monkeypatch: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO, logger.name)
    progress = TrainingProgress(Screen(Terminal()), Throughput(), 10, 64)
    progress.step_done(None, Step(4, 1.25, 0.0))
    progress.session_ended()
    assert [record.message for record in caplog.records] == ['step 4 of 10, loss 1.2500']


def test_screen__shows_the_seconds_of_waiting(monkeypatch: Any) -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.wait('preparing')
    wait_for(lambda: 'preparing, 0:01' in stream.getvalue())
    screen.update('step 1', at_once=True)
    size = len(stream.getvalue())
    screen_module.time.sleep(1.2)
    assert len(stream.getvalue()) == size and shown(stream) == 'step 1'
