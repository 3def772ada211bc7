"""Formats results: the spread of repeated measurements, tables in plain columns, and the machine."""

import platform
import statistics
from typing import NamedTuple, Sequence

from compat.messages import printable
from console.processes import usable_cores


class Spread(NamedTuple):
    """The median, the least and the greatest of repeated measurements."""

    median: float
    least: float
    greatest: float

    def text(self, digits: int) -> str:
        """The numbers with `digits` decimals: median (least–greatest)."""
        return '{:,.{d}f} ({:,.{d}f}–{:,.{d}f})'.format(*self, d=digits)


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def plain(head: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> str:
    """A table in plain columns; the first `names` columns are aligned left, the others right."""
    lines = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    sides = ['<' if column < names else '>' for column in range(len(widths))]
    return '\n'.join('  '.join(map('{:{}{}}'.format, line, sides, widths)).rstrip() for line in lines)


def machine() -> str:
    """The machine: its processor, and the number of cores that this process may use."""
    with open('/proc/cpuinfo') as cpuinfo:
        models = [line.partition(':')[2].strip() for line in cpuinfo if line.startswith('model name')]
    return f'{models[0] if models else platform.machine()}, {usable_cores()} cores'
