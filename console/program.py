"""Runs commands: the one place that turns errors into messages and exit codes."""

import os
import signal
import sys
from typing import Any, Callable, Optional

from absl import app

from compat.errors import FIX, INTERRUPTED, RETRY, CommandError, TerminatedError
from console import streams
from console.screen import Printable, Screen, failure, raw, set_up_logging

# A command: shows its progress on the screen, raises its errors, and returns its exit code; None means 0.
Command = Callable[[Screen], Optional[int]]


def run(command: Command, on_interrupt: str = 'interrupted') -> int:
    """Runs a command, and prints the message of an error that ends it.

    Messages go to standard error and begin with `error: `. Errors of TensorFlow and of the system are shown in one
    line, or with a traceback if the command has called `set_up_logging(screen, verbose=True)`. Any other exception is
    a defect of this program and is not caught. Returns the exit code, as `compat.errors` lists them.
    """
    streams.open_closed()
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    screen.verbose = None
    before = sys.stdout, sys.stderr
    # What commands print has names from files.
    sys.stdout, sys.stderr = Printable(raw(sys.stdout)), Printable(raw(sys.stderr))  # type: ignore[assignment]
    try:
        return command(screen) or 0
    except CommandError as error:
        return fail(screen, str(error), error.exit_code)
    except app.UsageError as error:
        return fail(screen, str(error), FIX)
    except KeyboardInterrupt:
        return fail(screen, on_interrupt, INTERRUPTED)
    except BrokenPipeError:
        # The reader of the output has closed it. Python flushes standard output once more at exit, and must not fail.
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
    """Whether an error is one of the system or of TensorFlow, which a command without need of it never loads."""
    of_tensorflow = sys.modules.get('tensorflow.python.framework.errors_impl')
    return isinstance(error, OSError) or bool(of_tensorflow and isinstance(error, of_tensorflow.OpError))


def raise_on_sigterm() -> None:
    """Makes SIGTERM raise TerminatedError, so that a command shows its results and ends its child processes first."""

    def terminate(number: int, frame: Any) -> None:
        raise TerminatedError('ended by SIGTERM')

    signal.signal(signal.SIGTERM, terminate)


def fail(screen: Screen, message: str, exit_code: int) -> int:
    """Prints an error below the log and returns its exit code."""
    screen.clear()
    print(f'error: {message}', file=sys.stderr, flush=True)
    return exit_code
