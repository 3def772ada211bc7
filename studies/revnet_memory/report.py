"""The results of the study of RevNet's memory: as tables, for a terminal and in Markdown, and as a figure."""

import io
import statistics
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from benchmarks.comparison import Spread, spread
from studies.report import markdown_table as to_markdown
from studies.report.palette import sign_of
from studies.revnet_memory.measurement import Largest, Measurement, Training

# Gomez et al., "The Reversible Residual Network", measured 25 % or so more time for a step.
PUBLISHED_OVERHEAD = 0.25
NOTHING = '–'

_WIDTH, _HEIGHT, _DPI = 11.0, 8.6, 130  # inches, inches, dots an inch
_FAINT, _GRID = '#57606a', '#e3e7ea'


class Search(NamedTuple):
    """For which memory the largest batch is looked for, and with what.

    Attributes:
      memory_mb: that a process may have, in MB.
      units: blocks a stage.
      is_reversible: rebuild the activations; else keep them.
    """

    memory_mb: float
    units: int
    is_reversible: bool


@dataclass
class Results:
    """What was measured.

    Attributes:
      network: what the blocks are of.
      size: height and width of the images, in pixels.
      measured: of each training.
      largest: of each search that was made.
      failed: what has failed, and why.
    """

    network: str
    size: int
    measured: Dict[Training, Measurement] = field(default_factory=dict)
    largest: Dict[Search, Largest] = field(default_factory=dict)
    failed: Dict[str, str] = field(default_factory=dict)


class Row(NamedTuple):
    """Plain and reversible training of the same network, as far as they were measured.

    Attributes:
      batch_size: images in a step.
      units: blocks a stage.
      plain: with activations kept; None if that failed.
      reversible: with activations rebuilt; None if that failed.
      overhead: CPU time of a reversible step over that of a plain one in the same round, less 1.
    """

    batch_size: int
    units: int
    plain: Optional[Measurement]
    reversible: Optional[Measurement]
    overhead: Optional[Spread]


class Slope(NamedTuple):
    """What one more block in each stage takes, from the least to the greatest depth, in MB."""

    step_mb: float
    held_mb: float


def rows_of(results: Results) -> List[Row]:
    """The rows, by batch size and depth."""
    rows = []
    for batch_size, units in sorted({(training.batch_size, training.units) for training in results.measured}):
        plain, reversible = (
            results.measured.get(Training(results.network, units, batch_size, results.size, is_reversible))
            for is_reversible in (False, True)
        )
        overhead = None
        if plain and reversible:
            overhead = spread([one / other - 1 for one, other in zip(reversible.cpu_seconds, plain.cpu_seconds)])
        rows.append(Row(batch_size, units, plain, reversible, overhead))
    return rows


def slope_of(of_depth: Dict[int, Optional[Measurement]]) -> Optional[Slope]:
    """What depth costs; None without two depths.

    Args:
      of_depth: what was measured, by blocks a stage.
    """
    known = sorted((depth, measurement) for depth, measurement in of_depth.items() if measurement)
    if len(known) < 2:
        return None
    (least, shallow), (greatest, deep) = known[0], known[-1]
    return Slope(*((getattr(deep, name) - getattr(shallow, name)) / (greatest - least) for name in Slope._fields))


# Tables.


class Table(NamedTuple):
    """A table and what is to be said of it; columns of numbers follow `names` columns of words."""

    title: str
    head: Tuple[str, ...]
    rows: List[List[str]]
    names: int
    notes: Tuple[str, ...] = ()


def tables(results: Results) -> List[Table]:
    """All tables; those that have no rows are left out."""
    rows = rows_of(results)
    batch_sizes = sorted({row.batch_size for row in rows})
    every = [
        _steps(rows),
        _slopes([[row for row in rows if row.batch_size == batch_size] for batch_size in batch_sizes]),
        _largest(results.largest),
        Table('Failed', ('', 'reason'), [[what, why] for what, why in results.failed.items()], names=2),
    ]
    return [table for table in every if table.rows]


def _steps(rows: Sequence[Row]) -> Table:
    head = (
        *('batch', 'blocks a stage'),
        *('step, MB: plain', 'reversible', 'process, MB: plain', 'reversible'),
        *('CPU-s a step: plain', 'reversible', 'overhead', 's a step: plain', 'reversible'),
    )
    cells = [
        [
            *(str(row.batch_size), str(row.units)),
            *(
                _number(_value(measurement, name), digits)
                for name, digits in (('step_mb', 0), ('peak_mb', 0), ('cpu_seconds', 2))
                for measurement in (row.plain, row.reversible)
            ),
            _percents(row.overhead),
            *(_number(_value(measurement, 'seconds'), 2) for measurement in (row.plain, row.reversible)),
        ]
        for row in rows
    ]
    return Table(
        'Memory and time of a step',
        head,
        cells,
        2,
        (
            'step: what it takes at its peak, beyond what the process holds between two steps; process: its peak, '
            'TensorFlow, graph and weights included.',
            f'overhead: CPU time, reversible over plain in the same round, less 1: median (least to greatest). '
            f'Published: {_percent(PUBLISHED_OVERHEAD)}.',
        ),
    )


def _slopes(of_batch_sizes: Sequence[Sequence[Row]]) -> Table:
    cells = []
    for rows in of_batch_sizes:
        plain = slope_of({row.units: row.plain for row in rows})
        reversible = slope_of({row.units: row.reversible for row in rows})
        if plain and reversible:
            overheads = [row.overhead.median for row in rows if row.overhead]
            cells.append(
                [
                    str(rows[0].batch_size),
                    *(_number(slope.step_mb, 2) for slope in (plain, reversible)),
                    *(_number(slope.held_mb, 2) for slope in (plain, reversible)),
                    _percents(spread(overheads)),
                ]
            )
    return Table(
        'What one more block in each stage takes',
        ('batch', 'step, MB: plain', 'reversible', 'held, MB: plain', 'reversible', 'overhead, of all depths'),
        cells,
        1,
        ('held: between two steps: weights, momentum, and the graph itself.',),
    )


def _largest(searches: Dict[Search, Largest]) -> Table:
    cells = [
        [
            f'{search.memory_mb / 1e3:g} GB',
            str(search.units),
            'reversible' if search.is_reversible else 'plain',
            str(found.fits),
            str(found.too_many),
            ', '.join(f'{batch}: {_number(peak, 0) if peak else "more"}' for batch, peak in found.tries.items()),
        ]
        for search, found in sorted(searches.items())
    ]
    return Table(
        'The largest batch that fits',
        ('memory', 'blocks a stage', '', 'fits', 'does not', 'tried, MB of the process'),
        cells,
        3,
    )


def _value(measurement: Optional[Measurement], name: str) -> Optional[float]:
    """A field, of several rounds the median."""
    value = getattr(measurement, name) if measurement else None
    return statistics.median(value) if isinstance(value, list) else value


def _number(value: Optional[float], digits: int) -> str:
    return NOTHING if value is None else f'{value:,.{digits}f}'


def _percent(fraction: float) -> str:
    return f'{round(100 * fraction):+d} %'


def _percents(values: Optional[Spread]) -> str:
    if values is None:
        return NOTHING
    return f'{_percent(values.median)} ({round(100 * values.least):+d} to {round(100 * values.greatest):+d})'


def markdown(results: Results, picture: str, notes: Sequence[str]) -> str:
    """The tables in Markdown.

    Args:
      results: what to tell.
      picture: the file of the figure, beside it.
      notes: how it was measured, a sentence or more each.
    """
    parts = [
        f'# Memory and time of {results.network}, plain and reversible',
        *notes,
        f'![memory and time of a step against depth]({picture})',
    ]
    for table in tables(results):
        parts += [f'## {table.title}', to_markdown.table(table.head, table.rows, table.names), *table.notes]
    return '\n\n'.join(parts) + '\n'


# The figure.


def figure(results: Results) -> bytes:
    """Memory and time against depth, as a PNG file: a colour per batch size; plain is dashed and hollow."""
    from matplotlib.figure import Figure

    rows = rows_of(results)
    drawing = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, facecolor='white')
    (step, process), (time, overhead) = drawing.subplots(2, 2)
    drawing.suptitle(f'{results.network} with more blocks: activations kept (plain), or rebuilt (reversible)')
    for axes, title, label, name in (
        (step, 'What a step takes', 'beyond what is held between steps, MB', 'step_mb'),
        (process, 'The whole process', 'peak, MB', 'peak_mb'),
        (time, 'CPU time of a step', 'CPU-seconds', 'cpu_seconds'),
    ):
        axes.set_title(title)
        axes.set_ylabel(label)
        _draw(axes, rows, name)
        axes.set_ylim(bottom=0)
    _draw_overhead(overhead, rows)
    for axes in (step, process, time, overhead):
        _lay_out(axes, sorted({row.units for row in rows}))
    handles, labels = step.get_legend_handles_labels()
    drawing.legend(handles, labels, loc='lower center', ncol=min(6, max(1, len(labels))), frameon=False, fontsize=9)
    drawing.tight_layout(rect=(0, 0.03 + 0.03 * (len(labels) // 7), 1, 1), w_pad=2, h_pad=1.5)
    png = io.BytesIO()
    drawing.savefig(png, format='png')
    return png.getvalue()


def _draw(axes: Any, rows: Sequence[Row], name: str) -> None:
    """A field of the measurements, a line for each batch size and way."""
    for index, batch_size in enumerate(sorted({row.batch_size for row in rows})):
        sign = sign_of(index)
        for is_reversible in (False, True):
            drawn = [
                (row.units, spread(value if isinstance(value, list) else [value]))
                for row in rows
                for value in [getattr(row.reversible if is_reversible else row.plain, name, None)]
                if row.batch_size == batch_size and value is not None
            ]
            if drawn:
                _draw_spreads(
                    axes,
                    drawn,
                    color=sign.light,
                    marker=sign.matplotlib_mark,
                    linestyle='-' if is_reversible else (0, (4, 2)),
                    markerfacecolor=sign.light if is_reversible else 'white',
                    label=f'batch {batch_size}, {"reversible" if is_reversible else "plain"}',
                )


def _draw_overhead(axes: Any, rows: Sequence[Row]) -> None:
    axes.axhline(100 * PUBLISHED_OVERHEAD, color=_FAINT, linestyle=(0, (1, 2)))
    axes.annotate(
        'published',
        *((0.6, 100 * PUBLISHED_OVERHEAD), (0, 3)),
        xycoords=('axes fraction', 'data'),
        textcoords='offset points',
        ha='center',
        fontsize=9,
        color=_FAINT,
    )
    axes.set_title('What rebuilding costs')
    axes.set_ylabel('additional CPU time of a step, %')
    for index, batch_size in enumerate(sorted({row.batch_size for row in rows})):
        sign = sign_of(index)
        drawn = [
            (row.units, Spread(*(100 * value for value in row.overhead)))
            for row in rows
            if row.overhead and row.batch_size == batch_size
        ]
        if drawn:
            _draw_spreads(axes, drawn, color=sign.light, marker=sign.matplotlib_mark)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def _draw_spreads(axes: Any, drawn: Sequence[Tuple[int, Spread]], **looks: Any) -> None:
    """Medians against depth, with the least and the greatest."""
    ends = [
        [values.median - values.least for _, values in drawn],
        [values.greatest - values.median for _, values in drawn],
    ]
    axes.errorbar(
        [units for units, _ in drawn],
        [values.median for _, values in drawn],
        yerr=ends,
        markersize=6,
        capsize=3,
        **looks,
    )


def _lay_out(axes: Any, depths: Sequence[int]) -> None:
    axes.set_xlabel('blocks in each stage')
    axes.set_xlim(left=0)
    axes.set_xticks([depth for depth in depths if depth > 2 or depth == depths[0]])
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
