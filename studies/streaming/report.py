"""The report of the study of streaming: tables and a figure."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from benchmarks.comparison import Spread, spread
from inception_v3.config import Config
from studies.report import drawing, sections
from studies.report.palette import sign_of
from studies.report.sections import Section
from studies.streaming.measurement import FILES, LAYOUTS, TAR, TFRECORD, Measurement, Reading

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
        return found.text(digits) if found else '–'

    def gain(self, pair: str, per: str) -> Optional[Spread]:
        """The relative gain in throughput of the first reading of a pair over the second, within each round.

        Args:
          pair: a key of `PAIRS`.
          per: `SECOND`, or `CPU_SECOND`, which other load on the machine affects less.
        """
        both = zip(*(self.measured.get(reading, []) for reading in PAIRS[pair]))
        if per == SECOND:
            gains = [one.images_per_second / other.images_per_second - 1 for one, other in both]
        else:
            gains = [other.cpu_ms / one.cpu_ms - 1 for one, other in both]
        return spread(gains) if gains else None


def tables(results: Results) -> List[Section]:
    """All tables."""
    fields = {'images_per_second': 0, 'cpu_ms': 2, 'disk_kb': 0, 'store_cpu_ms': 2, 'requests': 0}
    gains = []
    for pair, published in PUBLISHED.items():
        texts = [f'per {per} {_percent(results.gain(pair, per))}' for per in (SECOND, CPU_SECOND)]
        gains.append(f'{pair}: images {", ".join(texts)}; published: {published}')
    compared = Section(
        f'Without latency, {_READ_AHEAD} files at a time',
        ('stored as', 'images/s', 'CPU-ms / image', 'disk kB / image', "store's CPU-ms", 'requests / 1,000 images'),
        [
            (label, *(results.text(reading, field, digits) for field, digits in fields.items()))
            for label, reading in COMPARED.items()
        ],
        1,
        gains,
    )
    rows = []
    for layout in (FILES, TAR):
        for ahead in results.read_ahead:
            readings = [Reading(layout, latency, ahead) for latency in results.latencies]
            at_once = [each.most_at_once or 0 for reading in readings for each in results.measured.get(reading, [])]
            cells = [results.text(reading, 'images_per_second', 0) for reading in readings]
            rows.append((LAYOUTS[layout], str(ahead), *cells, str(max(at_once, default='–'))))
    header = ('stored as', 'files at a time', *(f'{latency:g} ms' for latency in results.latencies), 'requests at once')
    failed = Section('Failed', ('reading', 'reason'), [(str(each), why) for each, why in results.failed.items()], 2)
    remote = Section('Remote, images/s by the latency of each request', header, rows)
    return [compared, remote, *([failed] if results.failed else [])]


def _percent(gain: Optional[Spread]) -> str:
    return '{:+.1f} % ({:+.1f} … {:+.1f})'.format(*(100 * each for each in gain)) if gain else '–'


def markdown(results: Results, conditions: str, figure_file: str) -> str:
    """The report as Markdown, with the conditions in a sentence, and the figure's file in the same folder."""
    method = (
        'Medians (minimum–maximum); gains compare two measurements in the same round. CPU time and disk reads '
        'are those of the reading process alone. The object store runs on the same cores and has a column of its own; '
        'a remote store would take no CPU time of this machine. Before each measurement the files are dropped from '
        'the page cache.'
    )
    title = '# Streaming: single files, tar shards and TFRecord files, local and remote'
    picture = f'![images per second of each layout, and against the latency of requests]({figure_file})'
    return '\n\n'.join([title, conditions, method, *sections.markdown(tables(results)), picture]) + '\n'


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
        found, sign = results.spread(reading, 'images_per_second'), sign_of([*LAYOUTS].index(reading.layout))
        if found:
            axes.barh(row, found.median, color=sign.light, alpha=1 if reading.latency_ms is None else 0.55)
            axes.errorbar(found.median, row, xerr=drawing.bars([found]), color='black', capsize=4, linewidth=1.2)
    axes.set(yticks=range(len(COMPARED)), yticklabels=[*COMPARED], xlabel='images/s: median, minimum and maximum')
    axes.invert_yaxis()
    axes.set_title(f'No latency, {_READ_AHEAD} files at a time', fontsize=11)


def _draw_over_latency(axes: Any, layout: str, results: Results) -> None:
    for index, ahead in enumerate(results.read_ahead):
        # Signs that the left panel does not use.
        sign = sign_of(len(LAYOUTS) + index)
        of_latency = {
            latency: results.spread(Reading(layout, latency, ahead), 'images_per_second')
            for latency in results.latencies
        }
        points = [(latency, found) for latency, found in of_latency.items() if found]
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
    axes.set(xticks=results.latencies, xlabel='latency of each request (ms)', ylabel='images/s')
    axes.set_title(f'Remote, {LAYOUTS[layout]}', fontsize=11)
