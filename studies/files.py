"""Tables and files of a study's results."""

import json
import os
import textwrap
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from benchmarks import tables as columns
from benchmarks.comparison import Spread
from studies.report.palette import Sign

# A note longer than this goes on in the next line on the screen.
_WIDTH = 120


class Table(NamedTuple):
    """A table with a title above and notes below. The first `words` columns hold words, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    notes: Sequence[str] = ()


def write_json(path: str, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    from data.files import write_whole

    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def publish(out: str, name: str, title: str, notes: Sequence[str], tables: Sequence[Table], figure: bytes) -> None:
    """Prints the tables that have rows, and writes them as NAME.md beside their figure NAME.png; NAME.json is there."""
    from data.files import write_whole
    from studies.report.sections import markdown_table

    parts = [f'# {title}', *notes, f'![{title}]({name}.png)']
    for table in tables:
        if table.rows:
            print(f'\n{table.title}\n')
            columns.show(table.header, table.rows, table.words)
            parts += [f'## {table.title}', markdown_table(table.header, table.rows, table.words)]
        if table.rows and table.notes:
            print('', *(textwrap.fill(note, _WIDTH, subsequent_indent='  ') for note in table.notes), sep='\n')
            parts.append('\n'.join(f'- {note}' for note in table.notes))
    write_whole(os.path.join(out, f'{name}.png'), figure)
    write_whole(os.path.join(out, f'{name}.md'), '\n\n'.join(parts) + '\n')
    print(f'\nwritten: {name}.json, {name}.md and {name}.png in {out}')


def plot_spreads(axes: Any, values: Mapping[Any, Optional[Spread]], sign: Sign, shift: float = 0, **style: Any) -> None:
    """Draws a line of medians, those that there are, with bars from the least to the greatest value."""
    from studies.report.drawing import bars

    found = {x + shift: value for x, value in values.items() if value}
    if found:
        medians = [value.median for value in found.values()]
        look = {'color': sign.light, 'marker': sign.matplotlib_mark, 'capsize': 3, **style}
        axes.errorbar([*found], medians, yerr=bars([*found.values()]), **look)
