"""Tables and files of a study's results."""

import json
import os
import pathlib
import textwrap
from typing import Any, NamedTuple, Sequence

from compat.messages import in_markdown
from tools import extras
from tools.benchmarks import tables as columns

# The files of the shipped studies, by name.
SHIPPED = {path.stem: str(path) for path in sorted((pathlib.Path(__file__).parent / 'shipped').glob('[a-z]*.py'))}
# Characters on a line of a note on the screen.
_WIDTH = 120


class Table(NamedTuple):
    """A table with a title above and notes below. The first `words` columns hold words, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    notes: Sequence[str] = ()

    def plain(self) -> str:
        """Header and rows in plain columns."""
        return columns.plain(self.header, self.rows, self.words)

    def markdown(self) -> str:
        """Header and rows in GitHub-flavoured Markdown. The header is Markdown already; rows are escaped."""
        rule = [':--' if column < self.words else '--:' for column in range(len(self.header))]
        lines = [self.header, rule, *([in_markdown(cell) for cell in row] for row in self.rows)]
        return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def require_packages() -> None:
    """Raises CommandError unless the packages of the extra `studies` are installed."""
    extras.require('studies', 'jinja2', 'matplotlib', 'PIL', 'plotly', 'scipy')


def prepare(out: str) -> None:
    """Checks that a study can run, before it measures: its packages are installed, and its folder can be written."""
    require_packages()
    from inception_v3.model_dir import check_writable

    check_writable('out', out)


def write_json(path: str, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    from data.files import write_whole

    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def publish(
    out: str, name: str, title: str, notes: Sequence[str], tables: Sequence[Table], figure: bytes = b''
) -> None:
    """Prints the tables that have rows, and writes them as NAME.md beside NAME.json and their figure, PNG or SVG."""
    from data.files import write_whole

    parts, written = [f'# {title}', *notes], [f'{name}.json', f'{name}.md']
    if figure:
        written.append(f'{name}.png' if figure.startswith(b'\x89PNG') else f'{name}.svg')
        write_whole(os.path.join(out, written[-1]), figure)
        parts.append(f'![{title}]({written[-1]})')
    for table in tables:
        if table.rows:
            print(f'\n{table.title}\n\n{table.plain()}')
            parts += [f'## {table.title}', table.markdown()]
        if table.rows and table.notes:
            print('', *(textwrap.fill(note, _WIDTH, subsequent_indent='  ') for note in table.notes), sep='\n')
            parts.append('\n'.join(f'- {note}' for note in table.notes))
    write_whole(os.path.join(out, f'{name}.md'), '\n\n'.join(parts) + '\n')
    print(f'\nwritten: {", ".join(written)} in {out}')
