"""The live line and the log, as a terminal and as a file see them."""

import io
import logging
import math
import re
from typing import Any, Optional

import pytest
import tensorflow as tf

from inception_v3 import progress
from inception_v3.progress import Screen, Status, Throughput, TrainingProgress, duration


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    """What is on the screen in the end: an erased line is gone."""
    return '\n'.join(line.rpartition('\r\x1b[K')[2] for line in stream.getvalue().split('\n'))


def log(screen: Screen, text: str) -> None:
    screen.emit(logging.LogRecord('inception_v3', logging.INFO, '', 0, text, None, None))


def test_on_a_terminal_one_line_is_renewed_below_the_log(monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, '_LIVE_INTERVAL', 0)
    stream = Terminal()
    screen = Screen(stream)
    screen.update('step 1')
    screen.update('step 2')
    assert shown(stream) == 'step 2'
    log(screen, 'checkpoint written')
    assert shown(stream) == 'checkpoint written\nstep 2'
    screen.clear()
    assert shown(stream) == 'checkpoint written\n'


def test_a_line_is_not_longer_than_the_terminal(monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, '_terminal_width', lambda stream: 10)
    stream = Terminal()
    Screen(stream).update('123456789012345')
    assert shown(stream) == '123456789'


def test_elsewhere_plain_lines_come_now_and_then(monkeypatch: Any, caplog: Any) -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    monkeypatch.setattr(progress.logger, 'handlers', [screen])
    # Through setLevel: a logger remembers what it was asked while its level was another one.
    caplog.set_level(logging.INFO, progress.logger.name)
    for step in range(100):
        screen.update(f'step {step}')
    assert stream.getvalue() == 'step 0\n'
    assert '\x1b' not in stream.getvalue()


def test_training_shows_step_loss_speed_and_time_left(monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, '_LIVE_INTERVAL', 0)
    clock = iter([float(second) for second in range(100)])
    monkeypatch.setattr(progress.time, 'monotonic', lambda: next(clock))
    stream, throughput = Terminal(), Throughput()
    step = tf.compat.v1.train.get_or_create_global_step()
    tf.compat.v1.losses.add_loss(tf.constant(1.5))
    hook = TrainingProgress(Screen(stream), throughput, 10, batch_size=64)
    advance = step.assign_add(1)
    with tf.compat.v1.train.SingularMonitoredSession(hooks=[hook]) as session:
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


@pytest.mark.parametrize(('seconds', 'text'), [(0, '0:00'), (59.6, '1:00'), (3599, '59:59'), (36061, '10:01:01')])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ('line', 'status'),
    [
        ('step 7 of 10, loss 1.5000', Status(7, 10, 1.5, None, None)),
        ('step 7 of 10, loss nan', None),
        ('step 0 of 213000, loss 12.3456, 1,234.5 images/s, 10:01:01 left', Status(0, 213000, 12.3456, 1234.5, 36061)),
        ('step 9 of 10, loss 0.0000, 0.1 images/s, 0:09 left', Status(9, 10, 0, 0.1, 9)),
    ],
)
def test_a_line_is_read_as_it_was_written(line: str, status: Optional[Status]) -> None:
    read = Status.parse(f'12:34:56 {line}')
    if status is None:
        assert read and math.isnan(read.loss)
        return
    assert read == status and str(read) == line


@pytest.mark.parametrize('line', ['', 'step 7 of 10', 'step 500: top-1 98.89 %', 'step 7 of 10, loss 1.5000, more'])
def test_other_lines_are_no_status(line: str) -> None:
    assert Status.parse(line) is None
