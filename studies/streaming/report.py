"""The results of the study of streaming: as tables for a terminal and for Markdown, and as a figure."""

import io
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from benchmarks.comparison import Spread, spread
from inception_v3.config import Config
from studies.report.markdown_table import table
from studies.report.palette import sign_of
from studies.streaming.measurement import FILES, TAR, TFRECORD, Measurement, Reading

# Of the system with ResNet-50 on ImageNet and a v3-32, which is a pod's slice with four hosts.
PUBLISHED = {'B over A': 0.112, 'C over B': 0.0}
_PUBLISHED_WORDS = {'B over A': '+11.2 %', 'C over B': 'costs nothing'}

_READ_AHEAD = Config().num_files_infeed
_A, _B, _C = Reading(FILES, None, _READ_AHEAD), Reading(TAR, None, _READ_AHEAD), Reading(TAR, 0, _READ_AHEAD)
# What is compared without latency, by names: the three that were published about, and what else there is.
COMPARED: Dict[str, Reading] = {
    'A: single files, local': _A,
    'B: tar shards, local': _B,
    'C: tar shards, remote': _C,
    'TFRecord, local': Reading(TFRECORD, None, _READ_AHEAD),
    'TFRecord, remote': Reading(TFRECORD, 0, _READ_AHEAD),
    'single files, remote': Reading(FILES, 0, _READ_AHEAD),
}
_PAIRS = {'B over A': (_B, _A), 'C over B': (_C, _B)}
_LAYOUTS = {FILES: 'single files', TAR: 'tar shards', TFRECORD: 'TFRecord'}
_NOTHING = '–'
# What images are counted per.
SECOND, CPU_SECOND = 'second', 'CPU-second'


@dataclass
class Results:
    """What is known so far.

    Attributes:
      latencies: the latencies that are injected, in ms.
      read_ahead: the numbers of files that are read at a time.
      measured: the measurements of each reading, in the order of the rounds.
      failed: readings that failed, and why; they are not tried again.
    """

    latencies: Sequence[float]
    read_ahead: Sequence[int]
    measured: Dict[Reading, List[Measurement]]
    failed: Dict[Reading, str]

    def readings(self) -> List[Reading]:
        """All that there is to measure, each once."""
        grid = [
            Reading(layout, latency, ahead)
            for layout in (FILES, TAR)
            for ahead in self.read_ahead
            for latency in self.latencies
        ]
        return [*dict.fromkeys([*COMPARED.values(), *grid])]

    def spread(self, reading: Reading, field: str) -> Optional[Spread]:
        """The spread of a field of a reading's measurements; None if there is none."""
        values = [getattr(each, field) for each in self.measured.get(reading, [])]
        return spread(values) if values and values[0] is not None else None

    def text(self, reading: Reading, field: str, digits: int) -> str:
        """The same as a text: median, least and greatest."""
        found = self.spread(reading, field)
        # Without spaces in the brackets: a narrow table breaks before them.
        return '{:,.{d}f} ({:,.{d}f}–{:,.{d}f})'.format(*found, d=digits) if found else _NOTHING

    def gain(self, pair: str, per: str) -> Optional[Spread]:
        """By which part of the second the first of a pair gives more images, of measurements in the same round.

        Args:
          pair: one of those in `PUBLISHED`.
          per: `SECOND`, by the clock, or `CPU_SECOND`, which what else the machine does disturbs less.
        """
        first, second = (self.measured.get(reading, []) for reading in _PAIRS[pair])
        if per == SECOND:
            gains = [one.images_per_second / other.images_per_second - 1 for one, other in zip(first, second)]
        else:
            gains = [other.cpu_ms / one.cpu_ms - 1 for one, other in zip(first, second)]
        return spread(gains) if gains else None


@dataclass(frozen=True)
class Section:
    """A table with a title above, whose first `words` columns are of words, and lines below."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int
    lines: Sequence[str]


def name(reading: Reading) -> str:
    """A reading in words."""
    storage = 'local' if reading.latency_ms is None else f'remote, {reading.latency_ms:g} ms a request'
    return f'{_LAYOUTS[reading.layout]}, {storage}, {reading.read_ahead} at a time'


def sections(results: Results) -> List[Section]:
    """The tables."""
    parts = [_compared(results), _with_latency(results)]
    if results.failed:
        rows = [(name(reading), problem) for reading, problem in results.failed.items()]
        parts.append(Section('Failed', ('reading', 'reason'), rows, 2, ()))
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
    for pair, published in _PUBLISHED_WORDS.items():
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
        1,
        (),
    )


def markdown(results: Results, made: str, figure_file: str) -> str:
    """The report as Markdown.

    Args:
      results: what is known.
      made: how it was measured, in a sentence.
      figure_file: the name of the figure, beside it.
    """
    parts = ['# Streaming: single files, tar shards and TFRecord files, here and remote', made]
    parts.append(
        'Medians, with least and greatest; gains are of two measurements in the same round. CPU time, and what came '
        'from a disk, are those of the reading process alone. The object store, a process on the same cores, has a '
        'column of its own: a remote one would take nothing from this machine. Before each measurement the files are '
        'taken out of the page cache.'
    )
    for section in sections(results):
        parts += [f'## {section.title}', table(section.header, section.rows, section.words)]
        parts += ['\n'.join(f'- {line}' for line in section.lines)] if section.lines else []
    parts.append(f'![images per second of each way of storing, and against the latency of requests]({figure_file})')
    return '\n\n'.join(parts) + '\n'


def figure(results: Results) -> bytes:
    """The figure, a PNG file: the ways beside each other, and images/s against latency for files and for shards."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(13, 4.9), facecolor='white')
    compared, *over_latency = drawing.subplots(1, 3, gridspec_kw={'width_ratios': (1.25, 1, 1)})
    _draw_compared(compared, results)
    for axes, layout in zip(over_latency, (FILES, TAR)):
        _draw_over_latency(axes, layout, results)
    highest = max(axes.get_ylim()[1] for axes in over_latency)
    for axes in over_latency:
        axes.set_ylim(0, highest)
    for axes in (compared, *over_latency):
        axes.grid(color='0.9')
        axes.set_axisbelow(True)
        for side in ('top', 'right'):
            axes.spines[side].set_visible(False)
    # One legend for both: a panel may have lost a curve.
    curves = max((axes.get_legend_handles_labels() for axes in over_latency), key=lambda labelled: len(labelled[1]))
    drawing.legend(*curves, loc='lower right', ncol=4, fontsize=9, frameon=False)
    drawing.tight_layout(w_pad=2.5, rect=(0, 0.07, 1, 1))
    png = io.BytesIO()
    drawing.savefig(png, format='png', dpi=120)
    return png.getvalue()


def _draw_compared(axes: Any, results: Results) -> None:
    for row, reading in enumerate(COMPARED.values()):
        found, sign = results.spread(reading, 'images_per_second'), sign_of([*_LAYOUTS].index(reading.layout))
        if found:
            axes.barh(row, found.median, color=sign.light, alpha=1 if reading.latency_ms is None else 0.55)
            ends = [[found.median - found.least], [found.greatest - found.median]]
            axes.errorbar(found.median, row, xerr=ends, color='black', capsize=4, linewidth=1.2)
    axes.set_yticks(range(len(COMPARED)))
    axes.set_yticklabels([*COMPARED])
    axes.invert_yaxis()
    axes.set_xlabel('images/s: median, least and greatest')
    axes.set_title(f'No latency, {_READ_AHEAD} files at a time', fontsize=11)


def _draw_over_latency(axes: Any, layout: str, results: Results) -> None:
    for index, ahead in enumerate(results.read_ahead):
        # Others than those of the layouts.
        sign, points = sign_of(len(_LAYOUTS) + index), []
        for latency in results.latencies:
            found = results.spread(Reading(layout, latency, ahead), 'images_per_second')
            if found:
                points.append((latency, *found))
        if points:
            x, median, least, greatest = zip(*points)
            # Side by side, where they are on top of each other.
            beside = 0.012 * max(results.latencies) * (index - (len(results.read_ahead) - 1) / 2)
            ends = [[m - low for m, low in zip(median, least)], [high - m for m, high in zip(median, greatest)]]
            axes.errorbar(
                *([latency + beside for latency in x], median),
                yerr=ends,
                color=sign.light,
                marker=sign.matplotlib_mark,
                linestyle=(0, sign.dash) if sign.dash else '-',
                capsize=3,
                label=f'{ahead} at a time',
            )
    axes.set_xticks(results.latencies)
    axes.set_xlabel('latency of each request (ms)')
    axes.set_ylabel('images/s')
    axes.set_title(f'Remote, {_LAYOUTS[layout]}', fontsize=11)
