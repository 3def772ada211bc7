"""Tables of results: drawn by rich on a terminal, in plain columns elsewhere."""

import os
import platform
import sys
from typing import List, Sequence

from benchmarks.comparison import Row, Spread, spread
from benchmarks.measurement import PHASES, Failed
from console.messages import printable
from console.screen import raw

_HEAD = ('variant', 'pipeline', 'CPU-ms / image', 'images/s', 'peak MB', 'naive / this', 'this / decode', 'phases, %')
_SWEEP_HEAD = ('CPU-ms / image', 'images/s', 'peak MB')
_NONE = '-'


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
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        '  '.join(
            text.ljust(width) if column < names else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]


def show_comparison(rows: Sequence[Row]) -> None:
    """Prints the variants: medians with least and greatest, and the shares of the phases in the CPU time."""
    print(f'phases: shares of the CPU time, {" + ".join(PHASES)}\n')
    show(
        _HEAD,
        [
            [
                row.subject.variant,
                row.subject.pipeline,
                *_measured(row),
                _spread(spread(row.naive_ratio), 2) if row.naive_ratio else _NONE,
                f'{spread(row.decode_ratio).median:.2f}' if row.decode_ratio else _NONE,
                '+'.join(f'{100 * row.share(phase):.0f}' for phase in PHASES) if row.phases else _NONE,
            ]
            for row in rows
        ],
        names=2,
    )
    for name, flags in {row.subject.variant: row.subject.flags for row in rows if row.subject.flags}.items():
        print(f'{name}: {" ".join(flags)}')


def show_sweep(field: str, rows: Sequence[Row]) -> None:
    """Prints a sweep over the values of a flag."""
    show((f'--{field}', *_SWEEP_HEAD), [[row.subject.pipeline, *_measured(row)] for row in rows], names=1)


def failures(failed: Failed) -> List[str]:
    """The failed measurements, with the reason: a line each."""
    return [
        f'{"naive" if run.is_naive else "ours"}, {"train" if run.is_training else "eval"}, until {run.until}, '
        f'batches of {run.batch_size}: {problem}'
        for run, problem in failed.items()
    ]


def machine() -> str:
    """The machine: its processor, and the number of cores that this process may use."""
    with open('/proc/cpuinfo') as cpuinfo:
        models = [line.partition(':')[2].strip() for line in cpuinfo if line.startswith('model name')]
    return f'{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} cores'


def _measured(row: Row) -> List[str]:
    return [_spread(row.cpu_ms, 2), f'{row.images_per_second.median:,.0f}', f'{row.peak_mb.greatest:,.0f}']


def _spread(values: Spread, digits: int) -> str:
    # No spaces inside the brackets: a narrow table breaks lines at spaces.
    return '{:,.{d}f} ({:,.{d}f}–{:,.{d}f})'.format(*values, d=digits)
