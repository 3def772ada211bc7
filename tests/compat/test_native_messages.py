"""Tests of messages that C libraries write to standard error."""

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from compat import native_messages


def write(text: bytes) -> int:
    return os.write(2, text)


def test_during__returns_the_messages_of_the_call_only(capfd: Any) -> None:
    with native_messages.captured():
        write(b'before')
        assert native_messages.during(lambda: write(b'one\n')) == (4, 'one\n')
        write(b'between')
        assert native_messages.during(lambda: 7) == (7, '')
    assert capfd.readouterr().err == ''
    write(b'after')
    assert capfd.readouterr().err == 'after'


def test_during__outside_a_command_captures_and_restores(capfd: Any) -> None:
    assert native_messages.during(lambda: write(b'one')) == (3, 'one')
    with pytest.raises(ZeroDivisionError):
        native_messages.during(lambda: 1 // 0)
    write(b'after')
    assert capfd.readouterr().err == 'after'


def test_captured__keeps_a_log_handler_that_was_made_meanwhile(capfd: Any, monkeypatch: Any) -> None:
    with os.fdopen(2, 'w', 1, closefd=False) as stream:
        monkeypatch.setattr(sys, 'stderr', stream)
        with native_messages.captured():
            handler = logging.StreamHandler()
            handler.emit(logging.makeLogRecord({'msg': 'during'}))
        assert sys.stderr is stream
        handler.emit(logging.makeLogRecord({'msg': 'after'}))
    assert capfd.readouterr().err == 'during\nafter\n'


@pytest.mark.program
def test_captured__leaves_pythons_messages_on_the_screen() -> None:
    code = (
        'import os, sys\nfrom compat import native_messages\nwith native_messages.captured():\n'
        "  print('shown', file=sys.stderr); os.write(2, b'hidden'); print('too', file=sys.stderr)\n"
        "print('end', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, '-c', code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.stderr.splitlines() == ['shown', 'too', 'end']
