"""Runs a benchmark: its own flags and those of a run, and its help."""

from typing import Any, Callable, Dict, Optional, Sequence

from benchmarks import arguments
from console import program
from console.errors import EXIT_CODES
from console.screen import Screen, set_up_logging
from inception_v3.settings import flags

# A benchmark: called with its own flags, the rest of the command line and the screen; returns its exit code, None is 0.
Perform = Callable[[Dict[str, Any], flags.CommandLine, Screen], Optional[int]]


def run(argv: Sequence[str], name: str, purpose: str, own_flags: flags.OwnFlags, perform: Perform) -> int:
    """Runs a benchmark's command line, and returns the exit code.

    Args:
      argv: the command line.
      name: name of the benchmark's module.
      purpose: description for `--help`.
      own_flags: the benchmark's own flags, besides those of a run.
      perform: measures, and prints the results.
    """

    def command(screen: Screen) -> Optional[int]:
        own, command_line = arguments.parse(argv, own_flags)
        if command_line.help:
            print(f'{flags.help_text(name, purpose, command_line, own_flags)}\n\n{EXIT_CODES}')
            return None
        set_up_logging(screen, command_line.verbose)
        return perform(own, command_line, screen)

    return program.run(command)
