"""The report of the study of RevNet's memory: tables and a figure."""

import statistics
from typing import Any, Dict, List, Optional, Sequence, Tuple

from benchmarks.comparison import Spread, spread
from studies.report import drawing, sections
from studies.report.palette import sign_of
from studies.report.sections import Section
from studies.revnet_memory.measurement import Largest, Measurement
from studies.revnet_memory.results import PUBLISHED_OVERHEAD, Results, Row, Search, rows_of, slope_of

_NO_VALUE = '–'
_WIDTH, _HEIGHT, _DPI = 11.0, 8.6, 130  # inches, inches, dots per inch


def tables(results: Results) -> List[Section]:
    """All tables that have rows."""
    rows = rows_of(results)
    batch_sizes = sorted({row.batch_size for row in rows})
    every = [
        _steps(rows),
        _slopes([[row for row in rows if row.batch_size == batch_size] for batch_size in batch_sizes]),
        _largest(results.largest),
        Section('Failed', ('measurement', 'reason'), [[what, why] for what, why in results.failed.items()], words=2),
    ]
    return [table for table in every if table.rows]


def _steps(rows: Sequence[Row]) -> Section:
    header = (
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
    notes = (
        'step: peak of a step beyond the memory held between steps; process: peak of the process, including '
        'TensorFlow, graph and weights.',
        'overhead: CPU time of a reversible step over a plain step in the same round, minus 1: median (minimum '
        f'to maximum). Published: {_percent(PUBLISHED_OVERHEAD)}.',
    )
    return Section('Memory and time of a step', header, cells, 2, notes)


def _slopes(of_batch_sizes: Sequence[Sequence[Row]]) -> Section:
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
    return Section(
        'Cost of one more block in each stage',
        ('batch', 'step, MB: plain', 'reversible', 'held, MB: plain', 'reversible', 'overhead, all depths'),
        cells,
        1,
        ('held: memory between two steps: weights, momentum and the graph itself.',),
    )


def _largest(searches: Dict[Search, Largest]) -> Section:
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
    header = ('memory', 'blocks a stage', 'training', 'fits', 'does not fit', 'tried, MB of the process')
    return Section('Largest batch that fits', header, cells, 3)


def _value(measurement: Optional[Measurement], name: str) -> Optional[float]:
    """A field of a measurement; the median if it has an element per round."""
    value = getattr(measurement, name) if measurement else None
    return statistics.median(value) if isinstance(value, list) else value


def _number(value: Optional[float], digits: int) -> str:
    return _NO_VALUE if value is None else f'{value:,.{digits}f}'


def _percent(fraction: float) -> str:
    return f'{round(100 * fraction):+d} %'


def _percents(values: Optional[Spread]) -> str:
    if values is None:
        return _NO_VALUE
    return f'{_percent(values.median)} ({round(100 * values.least):+d} to {round(100 * values.greatest):+d})'


def markdown(results: Results, picture: str, notes: Sequence[str]) -> str:
    """The report in Markdown.

    Args:
      results: the measurements.
      picture: name of the figure's file in the same folder.
      notes: how it was measured, a sentence or more each.
    """
    parts = [
        f'# Memory and time of {results.network}, plain and reversible',
        *notes,
        f'![memory and time of a step against depth]({picture})',
        *sections.markdown(tables(results)),
    ]
    return '\n\n'.join(parts) + '\n'


def figure(results: Results) -> bytes:
    """Memory and time against depth, as a PNG file: a colour per batch size; plain is dashed and hollow."""
    from matplotlib.figure import Figure

    rows = rows_of(results)
    drawn = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, facecolor='white')
    (step, process), (time, overhead) = drawn.subplots(2, 2)
    drawn.suptitle(f'{results.network} of varying depth: activations kept (plain) or rebuilt (reversible)')
    for axes, title, label, name in (
        (step, 'Memory of a step', 'peak beyond the memory held between steps, MB', 'step_mb'),
        (process, 'Memory of the process', 'peak, MB', 'peak_mb'),
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
    drawn.legend(handles, labels, loc='lower center', ncol=min(6, max(1, len(labels))), frameon=False, fontsize=9)
    drawn.tight_layout(rect=(0, 0.03 + 0.03 * (len(labels) // 7), 1, 1), w_pad=2, h_pad=1.5)
    return drawing.png(drawn)


def _draw(axes: Any, rows: Sequence[Row], name: str) -> None:
    """Draws a field of the measurements: a line for each batch size, plain and reversible."""
    for index, batch_size in enumerate(sorted({row.batch_size for row in rows})):
        sign = sign_of(index)
        for is_reversible in (False, True):
            points = [
                (row.units, spread(value if isinstance(value, list) else [value]))
                for row in rows
                for value in [getattr(row.reversible if is_reversible else row.plain, name, None)]
                if row.batch_size == batch_size and value is not None
            ]
            if points:
                _draw_spreads(
                    axes,
                    points,
                    color=sign.light,
                    marker=sign.matplotlib_mark,
                    linestyle='-' if is_reversible else (0, (4, 2)),
                    markerfacecolor=sign.light if is_reversible else 'white',
                    label=f'batch {batch_size}, {"reversible" if is_reversible else "plain"}',
                )


def _draw_overhead(axes: Any, rows: Sequence[Row]) -> None:
    axes.axhline(100 * PUBLISHED_OVERHEAD, color=drawing.FAINT, linestyle=(0, (1, 2)))
    axes.annotate(
        'published',
        *((0.6, 100 * PUBLISHED_OVERHEAD), (0, 3)),
        xycoords=('axes fraction', 'data'),
        textcoords='offset points',
        ha='center',
        fontsize=9,
        color=drawing.FAINT,
    )
    axes.set_title('Overhead of rebuilding activations')
    axes.set_ylabel('additional CPU time of a step, %')
    for index, batch_size in enumerate(sorted({row.batch_size for row in rows})):
        sign = sign_of(index)
        points = [
            (row.units, Spread(*(100 * value for value in row.overhead)))
            for row in rows
            if row.overhead and row.batch_size == batch_size
        ]
        if points:
            _draw_spreads(axes, points, color=sign.light, marker=sign.matplotlib_mark)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def _draw_spreads(axes: Any, points: Sequence[Tuple[int, Spread]], **style: Any) -> None:
    """Draws medians against depth, with bars from the minimum to the maximum."""
    axes.errorbar(
        [units for units, _ in points],
        [values.median for _, values in points],
        yerr=drawing.bars([values for _, values in points]),
        markersize=6,
        capsize=3,
        **style,
    )


def _lay_out(axes: Any, depths: Sequence[int]) -> None:
    drawing.lay_out(axes)
    axes.set_xlabel('blocks in each stage')
    axes.set_xlim(left=0)
    # Labels of the smallest depths would overlap.
    axes.set_xticks([depth for depth in depths if depth > 2 or depth == depths[0]])
