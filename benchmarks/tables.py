"""Tables of results in plain columns."""

import platform
from typing import List, Sequence

from console.messages import printable
from console.processes import usable_cores


def show(head: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> None:
    """Prints a table; its first `names` columns are aligned left, the others right."""
    print('\n'.join(plain(head, rows, names)))


def plain(head: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> List[str]:
    """The lines of a table; the first `names` columns are aligned left, the others right."""
    lines = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    sides = ['<' if column < names else '>' for column in range(len(widths))]
    return ['  '.join(map('{:{}{}}'.format, line, sides, widths)).rstrip() for line in lines]


def machine() -> str:
    """The machine: its processor, and the number of cores that this process may use."""
    with open('/proc/cpuinfo') as cpuinfo:
        models = [line.partition(':')[2].strip() for line in cpuinfo if line.startswith('model name')]
    return f'{models[0] if models else platform.machine()}, {usable_cores()} cores'
