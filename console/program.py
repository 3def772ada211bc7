"""Runs commands: the one place that turns errors into messages and exit codes."""

import contextlib
import os
import signal
import sys
import threading
from typing import Any, Callable, Iterator, Optional

from absl import app

from compat.errors import FIX, INTERRUPTED, RESUME, RETRY, CommandError, Terminated
from console import streams
from console.screen import Printable, Screen, failure, raw, set_up_logging

# A command: shows its progress on the screen, raises its errors, and returns its exit code; None means 0.
Command = Callable[[Screen], Optional[int]]


def run(command: Command, on_interrupt: str = 'interrupted') -> int:
    """Runs a command, and prints the message of an error that ends it.

    Messages go to standard error and begin with `error: `. Errors of TensorFlow and of the system are shown in one
    line, or with a traceback if the command has called `set_up_logging(screen, verbose=True)`. Any other exception is
    a defect of this program and is not caught. Returns the exit code, as `compat.errors` lists them.

    SIGTERM unwinds the command as Ctrl-C does, so that it ends its child processes and removes its temporary files.
    `on_interrupt`, the message about an interruption, begins with the word `interrupted`.
    """
    streams.open_closed()
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    screen.verbose = None
    before = sys.stdout, sys.stderr
    # The output of commands contains names from files.
    sys.stdout, sys.stderr = Printable(raw(sys.stdout)), Printable(raw(sys.stderr))  # type: ignore[assignment]
    try:
        with _sigterm_unwinds():
            return command(screen) or 0
    except CommandError as error:
        return fail(screen, str(error), error.exit_code)
    except app.UsageError as error:
        return fail(screen, str(error), FIX)
    except Terminated:
        return fail(screen, on_interrupt.replace('interrupted', 'ended by SIGTERM', 1), RESUME)
    except KeyboardInterrupt:
        return fail(screen, on_interrupt, INTERRUPTED)
    except BrokenPipeError:
        # The reader of the output has closed it. Python flushes standard output once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return RETRY
    except Exception as error:
        if screen.verbose or not _is_failure(error):
            raise
        hint = '' if screen.verbose is None else ' (--verbose shows the traceback)'
        return fail(screen, failure(error) + hint, RETRY)
    finally:
        sys.stdout, sys.stderr = before


def _is_failure(error: Exception) -> bool:
    """Whether an error is the system's or TensorFlow's. Some commands never load TensorFlow."""
    of_tensorflow = sys.modules.get('tensorflow.python.framework.errors_impl')
    return isinstance(error, OSError) or bool(of_tensorflow and isinstance(error, of_tensorflow.OpError))


@contextlib.contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Makes the first SIGTERM raise Terminated; a second one must not interrupt the clean-up."""
    before = signal.getsignal(signal.SIGTERM)
    # A parent process may have set it to be ignored. Only the main thread can set handlers.
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *unused: None)
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(screen: Screen, message: str, exit_code: int) -> int:
    """Prints an error below the log and returns its exit code."""
    screen.clear()
    print(f'error: {message}', file=sys.stderr, flush=True)
    return exit_code
