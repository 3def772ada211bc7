"""The command of a benchmark: its flags, its help, and the flags of a run."""

from typing import Any, Callable, Dict, Optional, Sequence

from benchmarks import arguments
from console import program
from console.errors import EXIT_CODES
from console.screen import Screen, set_up_logging
from inception_v3 import flags

# A benchmark takes its own flags, the command line of a run and the screen. It returns an exit code; None means 0.
Perform = Callable[[Dict[str, Any], flags.CommandLine, Screen], Optional[int]]


def run(argv: Sequence[str], name: str, purpose: str, own_flags: flags.OwnFlags, perform: Perform) -> int:
    """Runs a benchmark's command line and returns its exit code.

    Args:
      argv: the command line.
      name: the command's name.
      purpose: description for `--help`.
      own_flags: the benchmark's own flags, besides those of a run.
      perform: the benchmark, which measures and prints the results.
    """

    def command(screen: Screen) -> Optional[int]:
        own, command_line = arguments.parse(argv, own_flags)
        if command_line.help:
            print(f'{flags.help_text(name, purpose, command_line, own_flags)}\n\n{EXIT_CODES}')
            return None
        set_up_logging(screen, command_line.verbose)
        return perform(own, command_line, screen)

    return program.run(command)
