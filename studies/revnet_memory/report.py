"""The results of the study of RevNet's memory: their JSON, tables and figure."""

import statistics
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from benchmarks.comparison import Spread, spread
from console import json_content
from inception_v3.config import ConfigError
from studies.report import drawing, sections
from studies.report.palette import sign_of
from studies.report.sections import Section
from studies.revnet_memory.measurement import Largest, Measurement, Training

# Additional time of a step, as published for another TensorFlow program of RevNet (not by Gomez et al., the paper).
PUBLISHED_OVERHEAD = 0.25


class Search(NamedTuple):
    """A search for the largest batch.

    Attributes:
      memory_mb: memory limit of the process, in MB.
      units: blocks in each stage.
      is_reversible: whether activations are rebuilt (reversible) or kept (plain).
    """

    memory_mb: float
    units: int
    is_reversible: bool


@dataclass
class Results:
    """All measurements.

    Attributes:
      network: the network whose depth is varied.
      size: height and width of the images, in pixels.
      measured: the measurement of each training.
      largest: the result of each search.
      failed: the measurements that failed, in words, with the reason.
    """

    network: str
    size: int
    measured: Dict[Training, Measurement] = field(default_factory=dict)
    largest: Dict[Search, Largest] = field(default_factory=dict)
    failed: Dict[str, str] = field(default_factory=dict)


def to_dict(found: Results, settings: Dict[str, Any]) -> Dict[str, Any]:
    """The results for JSON; `from_json` reads them back."""
    from inception_v3.run import source

    return {
        'settings': settings,
        'published_overhead': PUBLISHED_OVERHEAD,
        'measurements': [
            {**training._asdict(), **measurement._asdict()} for training, measurement in found.measured.items()
        ],
        'largest': [
            {**search._asdict(), **largest._asdict(), 'tries': [*largest.tries.items()]}
            for search, largest in found.largest.items()
        ],
        'failed': found.failed,
        'versions': source.versions(),
    }


def from_json(text: str, settings: Dict[str, Any]) -> Results:
    """Reads the JSON of `to_dict` back, without what failed, so that it is measured again.

    Raises:
      ConfigError: the text is not JSON of this study, or its settings differ from the current ones.
    """
    found = Results(settings['network'], settings['size'])

    def read(content: Any) -> Dict[str, Any]:
        for each in content['measurements']:
            training = Training(*(each[name] for name in Training._fields))
            found.measured[training] = Measurement(*(each[name] for name in Measurement._fields))
        for each in content['largest']:
            search = Search(*(each[name] for name in Search._fields))
            found.largest[search] = Largest(each['fits'], each['too_many'], dict(each['tries']))
        return {name: content['settings'][name] for name in settings}

    try:
        before = json_content.from_json(text, read)
    except ValueError:
        raise ConfigError('this study did not write the file')
    for name, value in settings.items():
        if before[name] != value:
            raise ConfigError(f'{name} was {before[name]}, and is {value} now')
    return found


class Row(NamedTuple):
    """Plain and reversible training of the same network.

    Attributes:
      batch_size: images in a step.
      units: blocks in each stage.
      plain: with activations kept; None if the measurement failed.
      reversible: with activations rebuilt; None if the measurement failed.
    """

    batch_size: int
    units: int
    plain: Optional[Measurement]
    reversible: Optional[Measurement]

    @property
    def overhead(self) -> Optional[Spread]:
        """CPU time of a reversible step over that of a plain step in the same round, minus 1."""
        if not self.plain or not self.reversible:
            return None
        return spread([one / other - 1 for one, other in zip(self.reversible.cpu_seconds, self.plain.cpu_seconds)])


def rows_of(results: Results) -> List[Row]:
    """The rows, sorted by batch size and depth."""
    rows = []
    for batch_size, units in sorted({(training.batch_size, training.units) for training in results.measured}):
        pair = [Training(results.network, units, batch_size, results.size, kind) for kind in (False, True)]
        rows.append(Row(batch_size, units, *map(results.measured.get, pair)))
    return rows


def slope_of(of_depth: Dict[int, Optional[Measurement]], name: str) -> Optional[float]:
    """The rise of a field in MB per additional block in each stage; None with fewer than two depths."""
    known = sorted((depth, getattr(measurement, name)) for depth, measurement in of_depth.items() if measurement)
    if len(known) < 2:
        return None
    (least, shallow), (greatest, deep) = known[0], known[-1]
    return (deep - shallow) / (greatest - least)


def tables(results: Results) -> List[Section]:
    """All tables that have rows."""
    rows = rows_of(results)
    failed = [[what, why] for what, why in results.failed.items()]
    every = [
        _steps(rows),
        _slopes(rows),
        _largest(results.largest),
        Section('Failed', ('measurement', 'reason'), failed, 2),
    ]
    return [table for table in every if table.rows]


def _steps(rows: Sequence[Row]) -> Section:
    header = ['batch', 'blocks a stage', 'step, MB: plain', 'reversible', 'process, MB: plain', 'reversible']
    header += ['CPU-s a step: plain', 'reversible', 'overhead', 's a step: plain', 'reversible']
    cells = []
    for row in rows:
        numbers = [
            _number(_value(measurement, name), digits)
            for name, digits in (('step_mb', 0), ('peak_mb', 0), ('cpu_seconds', 2), ('seconds', 2))
            for measurement in (row.plain, row.reversible)
        ]
        cells.append([str(row.batch_size), str(row.units), *numbers[:6], _percents(row.overhead), *numbers[6:]])
    notes = (
        'step: peak of a step beyond the memory held between steps; process: peak of the process, including '
        'TensorFlow, graph and weights.',
        'overhead: CPU time of a reversible step over a plain step in the same round, minus 1: median (minimum '
        f'to maximum). Published: {_percent(PUBLISHED_OVERHEAD)}.',
    )
    return Section('Memory and time of a step', header, cells, 2, notes)


def _slopes(rows: Sequence[Row]) -> Section:
    cells = []
    for batch_size in sorted({row.batch_size for row in rows}):
        of_size = [row for row in rows if row.batch_size == batch_size]
        depths = {row.units: row.plain for row in of_size}, {row.units: row.reversible for row in of_size}
        slopes = [slope_of(of_depth, name) for name in ('step_mb', 'held_mb') for of_depth in depths]
        if None not in slopes:
            overheads = [row.overhead.median for row in of_size if row.overhead]
            cells.append([str(batch_size), *(_number(slope, 2) for slope in slopes), _percents(spread(overheads))])
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
    return '–' if value is None else f'{value:,.{digits}f}'


def _percent(fraction: float) -> str:
    return f'{round(100 * fraction):+d} %'


def _percents(fractions: Optional[Spread]) -> str:
    if fractions is None:
        return '–'
    least, greatest = (f'{round(100 * fraction):+d}' for fraction in fractions[1:])
    return f'{_percent(fractions.median)} ({least} to {greatest})'


def markdown(results: Results, picture: str, notes: Sequence[str]) -> str:
    """The report in Markdown, with the figure's file in the same folder, and notes on how it was measured."""
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
    depths = sorted({row.units for row in rows})
    drawn = Figure(figsize=(11.0, 8.6), dpi=130, facecolor='white')
    panels = drawn.subplots(2, 2).flat
    drawn.suptitle(f'{results.network} of varying depth: activations kept (plain) or rebuilt (reversible)')
    for axes, (title, label, name) in zip(
        panels,
        (
            ('Memory of a step', 'peak beyond the memory held between steps, MB', 'step_mb'),
            ('Memory of the process', 'peak, MB', 'peak_mb'),
            ('CPU time of a step', 'CPU-seconds', 'cpu_seconds'),
            ('Overhead of rebuilding activations', 'additional CPU time of a step, %', ''),
        ),
    ):
        axes.set(title=title, xlabel='blocks in each stage', ylabel=label)
        drawing.lay_out(axes)
        if name:
            for is_reversible in (False, True):
                way = 'reversible' if is_reversible else 'plain'
                style = {} if is_reversible else {'linestyle': (0, (4, 2)), 'markerfacecolor': 'white'}
                _draw(axes, rows, [_spread_of(getattr(row, way), name) for row in rows], way, **style)
        else:
            axes.axhline(100 * PUBLISHED_OVERHEAD, color=drawing.FAINT, linestyle=(0, (1, 2)), label='published')
            overheads = [row.overhead and Spread(*(100 * value for value in row.overhead)) for row in rows]
            _draw(axes, rows, overheads, '')
            axes.legend(*[each[:1] for each in axes.get_legend_handles_labels()], frameon=False, fontsize=9)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0 if name else min(0, axes.get_ylim()[0]))
        # Labels of the smallest depths would overlap.
        axes.set_xticks([depth for depth in depths if depth > 2 or depth == depths[0]])
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc='lower center', ncol=min(6, max(1, len(labels))), frameon=False, fontsize=9)
    drawn.tight_layout(rect=(0, 0.03 + 0.03 * (len(labels) // 7), 1, 1), w_pad=2, h_pad=1.5)
    return drawing.png(drawn)


def _spread_of(measurement: Optional[Measurement], name: str) -> Optional[Spread]:
    value = getattr(measurement, name) if measurement else None
    return None if value is None else spread(value if isinstance(value, list) else [value])


def _draw(axes: Any, rows: Sequence[Row], values: Sequence[Optional[Spread]], way: str, **style: Any) -> None:
    """Draws medians against depth, with bars from the minimum to the maximum: a line for each batch size."""
    for index, batch_size in enumerate(sorted({row.batch_size for row in rows})):
        sign = sign_of(index)
        points = [(row.units, value) for row, value in zip(rows, values) if value and row.batch_size == batch_size]
        if points:
            axes.errorbar(
                [units for units, _ in points],
                [value.median for _, value in points],
                yerr=drawing.bars([value for _, value in points]),
                color=sign.light,
                marker=sign.matplotlib_mark,
                markersize=6,
                capsize=3,
                label=f'batch {batch_size}, {way}',
                **style,
            )
