"""Tables, figures and files of a study's results."""

import json
import os
import textwrap
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from benchmarks import tables as columns
from benchmarks.comparison import Spread
from studies import extras

# A note longer than this goes on in the next line on the screen.
_WIDTH = 120


class Table(NamedTuple):
    """A table with a title above and notes below. The first `words` columns hold words, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    notes: Sequence[str] = ()


def prepare(out: str) -> None:
    """Checks that a study can run, before it measures: its packages are installed, and its folder can be written."""
    extras.require('studies')
    from inception_v3.run.files import check_writable

    check_writable('out', out)


def write_json(path: str, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    from data.files import write_whole

    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def publish(out: str, name: str, title: str, notes: Sequence[str], tables: Sequence[Table], figure: bytes) -> None:
    """Prints the tables that have rows, and writes them as NAME.md beside their figure, a PNG or SVG file of this name.

    NAME.json is there.
    """
    from data.files import write_whole
    from studies.report.sections import markdown_table

    drawn = f'{name}.png' if figure.startswith(b'\x89PNG') else f'{name}.svg'
    parts = [f'# {title}', *notes, f'![{title}]({drawn})']
    for table in tables:
        if table.rows:
            print(f'\n{table.title}\n')
            columns.show(table.header, table.rows, table.words)
            parts += [f'## {table.title}', markdown_table(table.header, table.rows, table.words)]
        if table.rows and table.notes:
            print('', *(textwrap.fill(note, _WIDTH, subsequent_indent='  ') for note in table.notes), sep='\n')
            parts.append('\n'.join(f'- {note}' for note in table.notes))
    write_whole(os.path.join(out, drawn), figure)
    write_whole(os.path.join(out, f'{name}.md'), '\n\n'.join(parts) + '\n')
    print(f'\nwritten: {name}.json, {name}.md and {drawn} in {out}')


class Panel(NamedTuple):
    """A panel of a figure: its title, the labels of its axes, and by series a spread at each position.

    Positions are numbers, or words for kinds side by side. The vertical axis is linear from 0, or logarithmic. The
    horizontal one may be logarithmic.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Mapping[Any, Optional[Spread]]]
    is_logarithmic: bool = False
    has_logarithmic_positions: bool = False


def chart(title: str, panels: Sequence[Panel], columns: int = 2, is_svg: bool = False) -> bytes:
    """A figure as a PNG file, or as SVG for light and dark pages. A series has one sign in all panels.

    It shows medians, with bars from the least to the greatest value.
    """
    from matplotlib.figure import Figure

    from studies.report import drawing
    from studies.report.palette import sign_of

    rows = -(-len(panels) // columns)
    drawn = Figure(figsize=(6 * columns + 1, 4 * rows + 1.2), dpi=120, facecolor='white')
    drawn.suptitle(title)
    signs = {label: sign_of(index) for index, label in enumerate({key: 0 for panel in panels for key in panel.series})}
    marks: Dict[str, Any] = {}
    for axes, panel in zip(drawn.subplots(rows, columns, squeeze=False).flat, panels):
        heading, x, y, series, is_logarithmic, has_logarithmic_positions = panel
        places = [*{place: 0 for values in series.values() for place in values}]
        are_words = any(isinstance(place, str) for place in places)
        for index, (label, values) in enumerate(series.items()):
            shift = 0.7 * ((index + 0.5) / len(series) - 0.5)
            found = {places.index(at) + shift if are_words else at: value for at, value in values.items() if value}
            if found:
                marks[label] = axes.errorbar(
                    [*found],
                    [value.median for value in found.values()],
                    yerr=drawing.bars([*found.values()]),
                    color=signs[label].light,
                    marker=signs[label].matplotlib_mark,
                    linestyle='none' if are_words else drawing.dashes(signs[label]),
                    capsize=3,
                )
        if are_words:
            axes.set_xticks(range(len(places)))
            axes.set_xticklabels([textwrap.fill(place, 12) for place in places], fontsize=8)
        axes.set(title=heading, xlabel=x, ylabel=y, yscale='log' if is_logarithmic else 'linear')
        if has_logarithmic_positions:
            axes.set_xscale('log')
            axes.set_xticks(places)
            axes.set_xticklabels([f'{place:,}' for place in places])
            axes.set_xticks([], minor=True)
            axes.yaxis.set_minor_formatter('{x:g}')
            axes.yaxis.set_major_formatter('{x:g}')
        if not is_logarithmic:
            axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        drawing.lay_out(axes)
    legend_columns = 2 * columns
    drawn.legend([*marks.values()], [*marks], loc='lower center', ncol=legend_columns, frameon=False, fontsize=9)
    drawn.tight_layout(rect=(0, 0.25 * (1 + len(marks) // legend_columns) / drawn.get_figheight(), 1, 1))
    return drawing.svg(drawn) if is_svg else drawing.png(drawn)
