"""Trains, evaluates and exports Inception v3: parses the command line, builds the run, runs it."""

import logging
import os
import sys
import warnings
from typing import Sequence

# Before TensorFlow is loaded, which is when it starts to warn: of what became of its names, and of NumPy's.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
logging.getLogger('tensorflow').setLevel(logging.ERROR)
warnings.filterwarnings('ignore', category=FutureWarning)

from absl import app  # noqa: E402

from inception_v3 import cycles, flags, progress  # noqa: E402
from inception_v3.data_set import fit_to_data_set  # noqa: E402

_INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Runs a command line, and returns its exit code."""
    try:
        command_line = flags.parse(argv)
        if command_line.help:
            print(flags.help_text('inception_v3.main'))
            return 0
        screen = progress.set_up_logging(command_line.verbose)
        print(cycles.Run(fit_to_data_set(command_line), screen).execute())
        return 0
    except app.UsageError as error:
        print(f'error: {error}', file=sys.stderr)
        return error.exitcode or 1
    except KeyboardInterrupt:
        print('\ninterrupted; the same command goes on from the last checkpoint', file=sys.stderr)
        return _INTERRUPTED


if __name__ == '__main__':
    sys.exit(main(sys.argv))
