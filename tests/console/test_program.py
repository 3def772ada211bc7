"""Tests of program.run: every kind of failure ends a command with one message and its exit code."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any, Callable, List, Optional

import pytest
from absl import app

from compat import deferred, tf
from compat.errors import CheckpointError, CommandError, RetryableError, TerminatedError
from console import processes, program
from console.screen import Screen, set_up_logging
from data.records import DataError
from data.remote import RemoteError, UnreachableError
from inception_v3 import __version__
from inception_v3.config import ConfigError


def raising(error: BaseException) -> Callable[[Screen], Optional[int]]:
    def command(screen: Screen) -> Optional[int]:
        raise error

    return command


@pytest.mark.parametrize(
    ('error', 'code'),
    [
        *((kind('text'), 2) for kind in (CommandError, ConfigError, DataError, RemoteError, CheckpointError)),
        (app.UsageError('text'), 2),
        *((kind('text'), 1) for kind in (RetryableError, UnreachableError)),
        (TerminatedError('text'), 75),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_program_run__a_users_error_has_a_message_and_an_exit_code(error: Exception, code: int, capsys: Any) -> None:
    assert program.run(raising(error)) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ('', 'error: text\n')


def test_program_run__has_exit_codes_for_commands_defects_and_ctrl_c(capsys: Any) -> None:
    assert (program.run(lambda screen: None), program.run(lambda screen: 2)) == (0, 2)
    with pytest.raises(ZeroDivisionError):
        program.run(raising(ZeroDivisionError()))
    assert program.run(raising(KeyboardInterrupt()), on_interrupt='nothing was written') == 130
    assert capsys.readouterr().err == 'error: nothing was written\n'


@pytest.mark.parametrize(
    'error', [OSError(28, 'No space left'), tf.errors.UnavailableError(None, None, 'No space left\nnode x')]
)
def test_program_run__a_system_error_is_one_line_and_may_be_retried(error: Exception, capsys: Any) -> None:
    assert program.run(raising(error)) == 1
    message = capsys.readouterr().err
    assert 'No space left' in message and 'node x' not in message and message.count('\n') == 1


def test_program_run__verbose_shows_the_traceback_of_a_system_error() -> None:
    def command(screen: Screen) -> None:
        set_up_logging(screen, verbose=True)
        raise OSError('gone')

    try:
        with pytest.raises(OSError, match='gone'):
            program.run(command)
    finally:
        set_up_logging(Screen(sys.stderr), verbose=False)


@pytest.mark.program
def test_program_run__a_reader_that_closes_the_output_causes_no_traceback() -> None:
    text = (
        'import sys\nfrom console import program\n'
        'def command(screen):\n    while True:\n        print("line" * 100)\n'
        'sys.exit(program.run(command))'
    )
    pipeline = f"{sys.executable} -c '{text}' | head -n 1"
    done = subprocess.run(['bash', '-c', pipeline], capture_output=True, timeout=60)
    assert done.stdout.startswith(b'line') and done.stderr == b''


def test_sigterm__unwinds_once_as_ctrl_c_and_is_named(capsys: Any) -> None:
    unwound: List[str] = []

    def command(screen: Screen) -> None:
        try:
            # Code that reads damaged files catches every Exception.
            with contextlib.suppress(Exception):
                os.kill(os.getpid(), signal.SIGTERM)
                # The signal may be handled a little later.
                time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            unwound.append('whole')

    before = signal.getsignal(signal.SIGTERM)
    assert program.run(command, 'interrupted; nothing was written') == 75
    assert unwound and signal.getsignal(signal.SIGTERM) is before
    assert capsys.readouterr().err == 'error: ended by SIGTERM; nothing was written\n'


def test_sigterm__stays_ignored_where_it_was(capsys: Any) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert program.run(lambda screen: os.kill(os.getpid(), signal.SIGTERM)) == 0
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(('verbose', 'hint'), [(None, ''), (False, ' (--verbose shows the traceback)')])
def test_program_run__names_the_verbose_flag_only_where_there_is_one(verbose: Any, hint: str, capsys: Any) -> None:
    def command(screen: Screen) -> None:
        screen.verbose = verbose
        raise OSError('gone')

    assert program.run(command) == 1
    assert capsys.readouterr().err == f'error: gone{hint}\n'


def test_trainer__is_the_program_of_pip_where_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.trainer() == ('python', '-m', 'inception_v3.main')
    # As in the wheel, where one package contains all others.
    monkeypatch.setattr(deferred, '_PREFIX', 'inception_v3_tpu.')
    assert processes.trainer() == ('inception-v3', 'train') and processes.command_name('train') == 'inception-v3 train'


@pytest.mark.parametrize('program', [('inception-v3',), ('python', '-m', 'inception_v3_tpu')])
def test_started__is_a_command_with_this_interpreter_in_every_folder(program: Any, tmp_path: Any) -> None:
    (tmp_path / 'inception_v3_tpu.py').write_text('raise SystemExit("a file of the user")')
    words = [*processes.started(program), '--version']
    assert subprocess.check_output(words, text=True, cwd=str(tmp_path)) == f'inception-v3 {__version__}\n'
    assert processes.started(['printf', 'text']) == ['printf', 'text']


def test_usable_cores__are_all_where_the_system_has_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, 'sched_getaffinity')
    monkeypatch.setattr(os, 'cpu_count', lambda: 7)
    assert processes.usable_cores() == 7


@pytest.mark.parametrize(('closed', 'words'), [('2>&-', ['parse']), ('2>&-', []), ('<&- >&- 2>&-', [])])
def test_closed_standard_streams__change_no_exit_code_and_take_no_file(
    closed: str, words: List[str], tmp_path: Any
) -> None:
    text = (
        'import os, sys\nfrom compat import errors\nfrom console import program\nfrom tools import parsers\n'
        'if sys.argv[1:]: parsers.new_parser("x", "").parse_args(["--no"])\n'
        'def command(screen):\n    with open("file", "w") as file:\n'
        '        os.write(2, b"of a library")\n        print("output", flush=True)\n'
        '    raise errors.CommandError("a message")\n'
        'sys.exit(program.run(command))'
    )
    command = ['bash', '-c', f'"$@" {closed}', 'bash', sys.executable, '-c', text, *words]
    done = subprocess.run(
        command, cwd=str(tmp_path), env={**os.environ, 'PYTHONPATH': os.getcwd()}, stdout=subprocess.PIPE, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == (b'output\n' if closed == '2>&-' and not words else b'')
    assert words or (tmp_path / 'file').read_bytes() == b''


@pytest.mark.program
@pytest.mark.both
@pytest.mark.parametrize('name', ['TF_XLA_FLAGS', 'XLA_FLAGS'])
def test_flags_that_xla_does_not_know__are_named(name: str) -> None:
    text = (
        'import sys\nfrom console import program\n'
        'def command(screen):\n    import compat.tensorflow\n'
        'sys.exit(program.run(command))'
    )
    done = subprocess.run(
        [sys.executable, '-c', text], env={**os.environ, name: '--nonsense'}, stderr=subprocess.PIPE, timeout=100
    )
    *_, error = done.stderr.decode().splitlines()
    assert error.startswith(f'error: {name}=--nonsense: XLA cannot use this environment variable: Unknown flag')
    assert error.endswith('This program does not need it: unset it.') and done.returncode == 2
