"""The report of the study of streaming: tables and a figure."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from benchmarks.comparison import Spread, spread
from inception_v3.config import Config
from studies.report import drawing, sections
from studies.report.palette import sign_of
from studies.report.sections import Section
from studies.streaming.measurement import FILES, TAR, TFRECORD, Measurement, Reading

# For ResNet-50 on ImageNet. Nothing is published of C over B.
PUBLISHED = {'B over A': '+11.2 %', 'C over A': 'throughput maintained', 'C over B': 'no figure'}

_READ_AHEAD = Config().num_files_infeed
_A, _B, _C = Reading(FILES, None, _READ_AHEAD), Reading(TAR, None, _READ_AHEAD), Reading(TAR, 0, _READ_AHEAD)
# The readings compared without latency. A, B and C are those of the published comparison.
COMPARED: Dict[str, Reading] = {
    'A: single files, local': _A,
    'B: tar shards, local': _B,
    'C: tar shards, remote': _C,
    'TFRecord, local': Reading(TFRECORD, None, _READ_AHEAD),
    'TFRecord, remote': Reading(TFRECORD, 0, _READ_AHEAD),
    'single files, remote': Reading(FILES, 0, _READ_AHEAD),
}
PAIRS = {'B over A': (_B, _A), 'C over A': (_C, _A), 'C over B': (_C, _B)}
_LAYOUTS = {FILES: 'single files', TAR: 'tar shards', TFRECORD: 'TFRecord'}
_NOTHING = '–'
# Units of throughput: images per second, and per second of CPU time.
SECOND, CPU_SECOND = 'second', 'CPU-second'


@dataclass
class Results:
    """The measurements made so far.

    Attributes:
      latencies: delays of requests, in ms.
      read_ahead: numbers of files that are read at a time.
      measured: measurements of each reading, in the order of the rounds.
      failed: readings that failed, with the reason; they are not measured again.
    """

    latencies: Sequence[float]
    read_ahead: Sequence[int]
    measured: Dict[Reading, List[Measurement]]
    failed: Dict[Reading, str]

    def readings(self) -> List[Reading]:
        """All readings to measure, without duplicates."""
        grid = [
            Reading(layout, latency, ahead)
            for layout in (FILES, TAR)
            for ahead in self.read_ahead
            for latency in self.latencies
        ]
        return [*dict.fromkeys([*COMPARED.values(), *grid])]

    def spread(self, reading: Reading, field: str) -> Optional[Spread]:
        """The spread of a field over the measurements of a reading; None without a value."""
        values = [getattr(each, field) for each in self.measured.get(reading, [])]
        return spread(values) if values and values[0] is not None else None

    def text(self, reading: Reading, field: str, digits: int) -> str:
        """The spread as text: median (minimum–maximum)."""
        found = self.spread(reading, field)
        # No spaces inside the brackets: a narrow table breaks lines at spaces.
        return '{:,.{d}f} ({:,.{d}f}–{:,.{d}f})'.format(*found, d=digits) if found else _NOTHING

    def gain(self, pair: str, per: str) -> Optional[Spread]:
        """The relative gain in throughput of the first reading of a pair over the second, within each round.

        Args:
          pair: a key of `PAIRS`.
          per: `SECOND`, or `CPU_SECOND`, which other load on the machine affects less.
        """
        first, second = (self.measured.get(reading, []) for reading in PAIRS[pair])
        if per == SECOND:
            gains = [one.images_per_second / other.images_per_second - 1 for one, other in zip(first, second)]
        else:
            gains = [other.cpu_ms / one.cpu_ms - 1 for one, other in zip(first, second)]
        return spread(gains) if gains else None


def name(reading: Reading) -> str:
    """A reading in words."""
    storage = 'local' if reading.latency_ms is None else f'remote, {reading.latency_ms:g} ms a request'
    return f'{_LAYOUTS[reading.layout]}, {storage}, {reading.read_ahead} at a time'


def tables(results: Results) -> List[Section]:
    """All tables."""
    parts = [_compared(results), _with_latency(results)]
    if results.failed:
        rows = [(name(reading), problem) for reading, problem in results.failed.items()]
        parts.append(Section('Failed', ('reading', 'reason'), rows, 2))
    return parts


def _compared(results: Results) -> Section:
    rows = []
    for label, reading in COMPARED.items():
        cells = (
            results.text(reading, 'images_per_second', 0),
            results.text(reading, 'cpu_ms', 2),
            results.text(reading, 'disk_kb', 0),
            results.text(reading, 'store_cpu_ms', 2),
            results.text(reading, 'requests', 0),
        )
        rows.append((label, *cells))
    lines = []
    for pair, published in PUBLISHED.items():
        gains = [f'per {per} {_percent(results.gain(pair, per))}' for per in (SECOND, CPU_SECOND)]
        lines.append(f'{pair}: images {", ".join(gains)}; published: {published}')
    return Section(
        f'Without latency, {_READ_AHEAD} files at a time',
        ('stored as', 'images/s', 'CPU-ms / image', 'disk kB / image', "store's CPU-ms", 'requests / 1,000 images'),
        rows,
        1,
        lines,
    )


def _percent(gain: Optional[Spread]) -> str:
    return '{:+.1f} % ({:+.1f} … {:+.1f})'.format(*(100 * each for each in gain)) if gain else _NOTHING


def _with_latency(results: Results) -> Section:
    rows = []
    for layout in (FILES, TAR):
        for ahead in results.read_ahead:
            readings = [Reading(layout, latency, ahead) for latency in results.latencies]
            at_once = [each.most_at_once or 0 for reading in readings for each in results.measured.get(reading, [])]
            cells = [results.text(reading, 'images_per_second', 0) for reading in readings]
            rows.append((_LAYOUTS[layout], str(ahead), *cells, str(max(at_once, default=_NOTHING))))
    header = [f'{latency:g} ms' for latency in results.latencies]
    return Section(
        'Remote, images/s by the latency of each request',
        ('stored as', 'files at a time', *header, 'requests at once'),
        rows,
    )


def markdown(results: Results, conditions: str, figure_file: str) -> str:
    """The report as Markdown.

    Args:
      results: the measurements.
      conditions: the conditions of the measurements, in a sentence.
      figure_file: name of the figure's file in the same folder.
    """
    parts = ['# Streaming: single files, tar shards and TFRecord files, local and remote', conditions]
    parts.append(
        'Medians (minimum–maximum); gains compare two measurements in the same round. CPU time and disk reads '
        'are those of the reading process alone. The object store runs on the same cores and has a column of its own; '
        'a remote store would take no CPU time of this machine. Before each measurement the files are dropped from '
        'the page cache.'
    )
    parts += sections.markdown(tables(results))
    parts.append(f'![images per second of each layout, and against the latency of requests]({figure_file})')
    return '\n\n'.join(parts) + '\n'


def figure(results: Results) -> bytes:
    """Throughput of all readings, and against latency for single files and for tar shards, as a PNG file."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(13, 4.9), facecolor='white')
    compared, *over_latency = drawn.subplots(1, 3, gridspec_kw={'width_ratios': (1.25, 1, 1)})
    _draw_compared(compared, results)
    for axes, layout in zip(over_latency, (FILES, TAR)):
        _draw_over_latency(axes, layout, results)
    highest = max(axes.get_ylim()[1] for axes in over_latency)
    for axes in over_latency:
        axes.set_ylim(0, highest)
    for axes in (compared, *over_latency):
        drawing.lay_out(axes)
    # One legend for both panels, from the one with more curves: readings may have failed.
    curves = max((axes.get_legend_handles_labels() for axes in over_latency), key=lambda labelled: len(labelled[1]))
    drawn.legend(*curves, loc='lower right', ncol=4, fontsize=9, frameon=False)
    drawn.tight_layout(w_pad=2.5, rect=(0, 0.07, 1, 1))
    return drawing.png(drawn, dpi=120)


def _draw_compared(axes: Any, results: Results) -> None:
    for row, reading in enumerate(COMPARED.values()):
        found, sign = results.spread(reading, 'images_per_second'), sign_of([*_LAYOUTS].index(reading.layout))
        if found:
            axes.barh(row, found.median, color=sign.light, alpha=1 if reading.latency_ms is None else 0.55)
            axes.errorbar(found.median, row, xerr=drawing.bars([found]), color='black', capsize=4, linewidth=1.2)
    axes.set_yticks(range(len(COMPARED)))
    axes.set_yticklabels([*COMPARED])
    axes.invert_yaxis()
    axes.set_xlabel('images/s: median, minimum and maximum')
    axes.set_title(f'No latency, {_READ_AHEAD} files at a time', fontsize=11)


def _draw_over_latency(axes: Any, layout: str, results: Results) -> None:
    for index, ahead in enumerate(results.read_ahead):
        # Signs that the left panel does not use.
        sign, points = sign_of(len(_LAYOUTS) + index), []
        for latency in results.latencies:
            found = results.spread(Reading(layout, latency, ahead), 'images_per_second')
            if found:
                points.append((latency, found))
        if points:
            # Error bars of different curves stand side by side.
            shift = 0.012 * max(results.latencies) * (index - (len(results.read_ahead) - 1) / 2)
            axes.errorbar(
                [latency + shift for latency, _ in points],
                [found.median for _, found in points],
                yerr=drawing.bars([found for _, found in points]),
                color=sign.light,
                marker=sign.matplotlib_mark,
                linestyle=drawing.dashes(sign),
                capsize=3,
                label=f'{ahead} at a time',
            )
    axes.set_xticks(results.latencies)
    axes.set_xlabel('latency of each request (ms)')
    axes.set_ylabel('images/s')
    axes.set_title(f'Remote, {_LAYOUTS[layout]}', fontsize=11)
