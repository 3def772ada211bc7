"""Command lines that run modules of this program, and the command line and processor cores of this process."""

import os
import shlex
import sys
from typing import List, Sequence, Tuple

from compat.deferred import full_name, is_installed
from compat.messages import shown

_PROGRAM = 'inception-v3'
# The longest command line on a page; it may name thousands of files.
_LONGEST = 600
# The folder of the outermost package.
_ROOT = os.path.abspath(__file__).rsplit(os.sep, 1 + __name__.count('.'))[0]


def module(name: str, *arguments: str) -> List[str]:
    """The command that runs a module like `python -m NAME`, but does not look for it in the working directory."""
    run = f'runpy.run_module({full_name(name)!r}, None, "__main__", True)'
    return [sys.executable, '-c', f'import sys; sys.path[0] = {_ROOT!r}; import runpy; {run}', *arguments]


def trainer() -> Tuple[str, ...]:
    """The training command for a shell; in a checkout, where `./run` has only `python` on its PATH, by module name."""
    return (_PROGRAM, 'train') if is_installed() else ('python', '-m', 'inception_v3.main')


def started(command: Sequence[str]) -> List[str]:
    """The words that run `inception-v3 …` or `python -m MODULE …` with this interpreter; others are unchanged."""
    if command[0] == _PROGRAM:
        return module('inception_v3_tpu.__main__', *command[1:])
    return module(*command[2:]) if [*command[:2]] == ['python', '-m'] else [*command]


def command_name(name: str) -> str:
    """The command as its user types it: `inception-v3 NAME`, or `python -m NAME` for a module that is not a command.

    In a checkout, training may also be started as `python -m inception_v3.main`, the name of the published program.
    """
    if name == 'train' and not sys.argv[0].startswith(_PROGRAM):
        return ' '.join(trainer())
    return f'python -m {name}' if '.' in name else f'{_PROGRAM} {name}'


def command_line(name: str) -> str:
    """The command line of this process, for a page."""
    return shown(' '.join([command_name(name), *map(shlex.quote, sys.argv[1:])]), _LONGEST)


def usable_cores() -> int:
    """The number of processor cores that this process may use; on macOS, the number of all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
