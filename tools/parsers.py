"""Command-line parsers of the tools, and argument types."""

import argparse
import textwrap
from typing import Any, Callable, List, NoReturn, Optional, Sequence

from compat.errors import EXIT_CODES, CommandError
from compat.messages import printable, shown
from console import processes, streams
from console.command_line import filled
from console.paths import check_stores, expanded

_KINDS = {int: 'a whole number', float: 'a number'}


class _Formatter(argparse.HelpFormatter):
    """Fills the paragraphs of a description to the width of the terminal; indented lines stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return filled(text, width)

    def _split_lines(self, text: str, width: int) -> List[str]:
        # Without breaks inside a name.
        return textwrap.wrap(' '.join(text.split()), width, break_long_words=False, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    """Expands `~`, refuses abbreviated flags, and ends its help with the exit codes; subcommands do the same."""

    def __init__(self, **settings: Any):
        super().__init__(
            epilog=EXIT_CODES,
            formatter_class=_Formatter,
            allow_abbrev=False,
            **settings,
        )

    def parse_args(self, args: Optional[Sequence[str]] = None, namespace: Any = None) -> Any:
        """Parses a command line, by default this process's, with `~` expanded.

        Refuses paths in stores that this TensorFlow cannot reach.
        """
        streams.open_closed()
        values = super().parse_args(expanded(args), namespace)
        try:
            check_stores(vars(values).values())
        except CommandError as error:
            self.error(str(error))
        return values

    def error(self, message: str) -> NoReturn:
        """Ends the process with the usage and a message, which may quote the command line."""
        super().error(printable(message, '\n'))


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Makes the parser of the command `inception-v3 NAME`."""
    return _Parser(prog=processes.command_name(name), description=description)


def folder(text: str) -> str:
    """The path of a folder, as a type for argparse."""
    if not text:
        raise argparse.ArgumentTypeError('must be the path of a folder')
    return text


def number_of(number_type: type, least: float, most: float = float('inf')) -> Callable[[str], Any]:
    """A type for argparse: a finite int or float within bounds."""

    def parse(text: str) -> Any:
        try:
            value = number_type(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most or value == float('inf'):
            bounds = f'from {least} to {most}' if most < float('inf') else f'at least {least}'
            raise argparse.ArgumentTypeError(f'{shown(text)}: must be {_KINDS[number_type]}, {bounds}')
        return value

    return parse


def numbers_of(number_type: type, least: float, most: float = float('inf')) -> Callable[[str], List[Any]]:
    """A type for argparse: comma-separated finite numbers within bounds, sorted and without duplicates."""
    parse = number_of(number_type, least, most)
    return lambda text: sorted({parse(part) for part in text.split(',')})
