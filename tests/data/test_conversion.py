"""Tests of long conversions: complete files only, one process per folder, progress, SIGTERM."""

import os
import pathlib
import signal
import time
import types
from typing import Any, List

import pytest

from console.errors import TerminatedError
from data import records
from data.convert import conversion


def test_alone_in__refuses_a_second_conversion_until_the_first_ends(tmp_path: pathlib.Path) -> None:
    work_dir = tmp_path / 'data' / 'conversion'
    work_dir.mkdir(parents=True)
    for _ in range(2):
        with conversion._alone_in(str(work_dir)):
            message = f'{tmp_path}/data: in use by another conversion. Wait for it, or stop it.'
            with pytest.raises(records.DataError, match=message), conversion._alone_in(str(work_dir)):
                raise AssertionError('two conversions run')


def test_resumable__sigterm_ends_as_ctrl_c_does_and_is_named() -> None:
    before = signal.getsignal(signal.SIGTERM)
    message = 'ended by SIGTERM; the same command resumes and keeps finished files'
    with pytest.raises(TerminatedError, match=message), conversion.resumable():
        os.kill(os.getpid(), signal.SIGTERM)
        # The signal may be handled a little later.
        time.sleep(60)
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(KeyboardInterrupt), conversion.resumable():
        raise KeyboardInterrupt
    with conversion.resumable():
        pass
    assert signal.getsignal(signal.SIGTERM) is before


class Screen:
    """Keeps the lines of progress."""

    def __init__(self, stream: Any) -> None:
        self.lines: List[str] = []
        self.is_clear = False

    def update(self, line: str) -> None:
        self.lines.append(line)

    def clear(self) -> None:
        self.is_clear = True


def test_progress__shows_rate_and_remaining_time(monkeypatch: Any) -> None:
    clock = [100.0]
    screen = Screen(None)
    monkeypatch.setattr(conversion, 'Screen', lambda stream: screen)
    monkeypatch.setattr(conversion.time, 'monotonic', lambda: clock[0])
    monkeypatch.setattr(conversion.sys, 'stderr', types.SimpleNamespace(isatty=lambda: True))
    with pytest.raises(KeyboardInterrupt), conversion.progress() as start:
        move = start('converting', 4000)
        clock[0] += 0.5
        move(10)
        assert screen.lines == []
        clock[0] += 9.5
        move(0)
        move(1000)
        # 1,000 in ten seconds: the other 3,000 take 30.
        assert screen.lines == ['converting: 1,000 of 4,000, 100/s, 0:30 left']
        move = start('finding', None)
        clock[0] += 2
        move(5000)
        assert screen.lines[1:] == ['finding: 5,000, 2,500/s']
        raise KeyboardInterrupt
    assert screen.is_clear
