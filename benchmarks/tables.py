"""Tables of results: drawn by rich on a terminal, in plain columns elsewhere."""

import os
import platform
import sys
from typing import List, Sequence

from console.messages import printable
from console.screen import raw


def show(head: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> None:
    """Prints a table; its first `names` columns are aligned left, the others right."""
    if sys.stdout.isatty():
        try:
            from rich.box import SIMPLE_HEAD
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            pass
        else:
            table = Table(box=SIMPLE_HEAD, padding=0, collapse_padding=True)
            for column, name in enumerate(head):
                table.add_column(name, justify='left' if column < names else 'right', overflow='fold')
            for row in rows:
                table.add_row(*(Text(printable(cell)) for cell in row))
            Console(file=raw(sys.stdout)).print(table)
            return
    print('\n'.join(plain(head, rows, names)))


def plain(head: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> List[str]:
    """The lines of a table in plain columns; the first `names` are aligned left, the others right."""
    lines = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    sides = ['<' if column < names else '>' for column in range(len(widths))]
    return ['  '.join(map('{:{}{}}'.format, line, sides, widths)).rstrip() for line in lines]


def machine() -> str:
    """The machine: its processor, and the number of cores that this process may use."""
    with open('/proc/cpuinfo') as cpuinfo:
        models = [line.partition(':')[2].strip() for line in cpuinfo if line.startswith('model name')]
    return f'{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} cores'
