"""Trains, evaluates and exports Inception v3: parses the command line, builds the run, runs it."""

import os
import signal
import sys
from typing import Sequence

if __name__ == '__main__':
    # Until `main` runs, there is nothing to say about an interruption, and nothing to lose.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *unused: os._exit(75))

import tensorflow as tf
from absl import app

from console.errors import RESUME, TerminatedError
from console.screen import Screen, failure, set_up_logging
from data.remote import UnreachableError
from inception_v3 import cycles, flags, seeding
from inception_v3.data_set import fit_to_data_set
from inception_v3.hooks.recovery import InterruptedTrainingError
from inception_v3.hooks.termination import Termination
from inception_v3.model_dir.trainer_lock import LockedError

# Exit codes. What failed may go well when it is done again; what the user has to change does not.
_FAILED = 1
_MISTAKE = 2
_INTERRUPTED = 130

_PURPOSE = f"""Trains, evaluates and exports Inception v3.

exit codes:
  0    done
  {_FAILED}    failed; it may go well when it is done again, and goes on from the last checkpoint
  {_MISTAKE}    failed; there is something to change first
  {RESUME}   ended by SIGTERM, in training after the step under way (on a TPU, the --iterations steps) was saved; the
       same command goes on
  {_INTERRUPTED}  interrupted by Ctrl-C; the same command goes on from the last checkpoint"""


def main(argv: Sequence[str]) -> int:
    """Runs a command line, and returns its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    screen = Screen(sys.stderr)
    verbose = False

    def end_at_once() -> None:
        os._exit(_fail(screen, 'ended by SIGTERM; the same command goes on from the last checkpoint', RESUME))

    try:
        command_line = flags.parse(argv)
        if command_line.help:
            print(flags.help_text('inception_v3.main', _PURPOSE))
            return 0
        verbose = command_line.verbose
        set_up_logging(screen, verbose)
        config = seeding.with_settled_threads(fit_to_data_set(command_line))
        with Termination(end_at_once) as termination:
            print(cycles.Run(config, screen, termination).execute())
        return 0
    except TerminatedError as error:
        return _fail(screen, str(error), RESUME)
    except (UnreachableError, InterruptedTrainingError, LockedError) as error:
        return _fail(screen, str(error), _FAILED)
    except app.UsageError as error:
        return _fail(screen, str(error), _MISTAKE)
    except KeyboardInterrupt:
        return _fail(screen, 'interrupted; the same command goes on from the last checkpoint', _INTERRUPTED)
    except (OSError, tf.errors.OpError) as error:
        if verbose:
            raise
        return _fail(screen, failure(error), _FAILED)


def _fail(screen: Screen, message: str, code: int) -> int:
    screen.clear()
    print(f'error: {message}', file=sys.stderr, flush=True)
    return code


if __name__ == '__main__':
    sys.exit(main(sys.argv))
