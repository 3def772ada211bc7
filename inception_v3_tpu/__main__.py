"""One program for training, data sets, predictions, studies and benchmarks.

  inception-v3 COMMAND [argument ...]   runs a command; inception-v3 COMMAND --help describes it
  inception-v3 --version

It works in every folder, also in one with a data.py or console.py of yours.
"""

import sys
from typing import Optional, Sequence

from console.errors import DONE, EXIT_CODES, FIX, CommandError
from console.messages import shown
from inception_v3_tpu.commands import COMMANDS, GROUPS, PROGRAM, run

_HINT = f'{PROGRAM} --help lists the commands.'


def help_text() -> str:
    """The text that `inception-v3 --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [str(__doc__).strip()]
    for group, commands in GROUPS.items():
        lines += ['', f'{group}:', *(f'  {name:<{width}}  {command.summary}' for name, command in commands.items())]
    return '\n'.join([*lines, '', EXIT_CODES])


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line, `sys.argv` by default, and returns its exit code."""
    name, *arguments = list(sys.argv[1:] if argv is None else argv) or ['']
    if name in COMMANDS:
        try:
            run(name, arguments)
        except CommandError as error:  # TensorFlow, which its module loads, lacks a package.
            return _fail(str(error))
        return DONE
    if name in ('-h', '--help'):
        print(help_text())
        return DONE
    if name == '--version':
        import inception_v3

        print(f'{PROGRAM} {inception_v3.__version__}')
        return DONE
    if not name:
        return _fail(f'name a command. {_HINT}')
    return _fail(f'{shown(name)}: no such command. {_HINT}')


def _fail(message: str) -> int:
    print(f'error: {message}', file=sys.stderr)
    return FIX


if __name__ == '__main__':
    sys.exit(main())
