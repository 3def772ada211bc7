"""What the benchmarks' programs have in common: from the command line to the exit code."""

import sys
from typing import Any, Callable, Dict, Sequence

import tensorflow as tf
from absl import app

from benchmarks import arguments
from benchmarks.measurement import MeasurementError
from console.screen import Screen, failure, set_up_logging
from inception_v3 import flags

FAILED = 1
MISTAKE = 2
INTERRUPTED = 130

# From the program's own flags, the rest of the command line, and where progress is shown, to the exit code.
Perform = Callable[[Dict[str, Any], flags.CommandLine, Screen], int]


def run(argv: Sequence[str], name: str, purpose: str, own_flags: flags.OwnFlags, perform: Perform) -> int:
    """Performs what a command line asks for, and returns its exit code.

    Args:
      argv: the command line.
      name: of the program.
      purpose: what `--help` says of it.
      own_flags: those that are not a run's.
      perform: does it, and prints the results.
    """
    screen = Screen(sys.stderr)
    try:
        own, command_line = arguments.parse(argv, own_flags)
        if command_line.help:
            print(flags.help_text(name, purpose, command_line, own_flags))
            return 0
        set_up_logging(screen, command_line.verbose)
        return perform(own, command_line, screen)
    except MeasurementError as error:
        return _fail(screen, str(error), FAILED)
    except app.UsageError as error:
        return _fail(screen, str(error), MISTAKE)
    except KeyboardInterrupt:
        screen.clear()
        return INTERRUPTED
    except (OSError, tf.errors.OpError) as error:
        return _fail(screen, failure(error), FAILED)


def _fail(screen: Screen, message: str, code: int) -> int:
    screen.clear()
    print(f'error: {message}', file=sys.stderr)
    return code
