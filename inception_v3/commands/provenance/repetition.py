"""Runs a recorded configuration, the argument, in a process of its own."""

import sys
from typing import Sequence

from console import program
from console.screen import Screen, set_up_logging
from inception_v3.config import Config
from inception_v3.train_and_evaluate import Run


def main(argv: Sequence[str]) -> int:
    """Runs the configuration that `argv` has as JSON, and returns the exit code.

    It is a run's final configuration, not a command line: its settings do not follow from a data set or a preset, and
    are not judged as flags that a user gave.
    """

    def command(screen: Screen) -> None:
        set_up_logging(screen, False)
        Run(Config.from_json(argv[1]), screen).execute()

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
