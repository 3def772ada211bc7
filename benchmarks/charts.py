"""Figures of the input pipeline, as PNG files.

Colours are Okabe and Ito's, which people with colour blindness can distinguish; hatches differ, too.
"""

import importlib.util
import os
from typing import Any, Sequence

from benchmarks.comparison import Row, Spread
from benchmarks.measurement import PHASES, PREPROCESSING, STORAGE, TRANSFER
from console import extras
from inception_v3.config import ConfigError

_COLOURS = {STORAGE: '#0072B2', PREPROCESSING: '#E69F00', TRANSFER: '#009E73'}
_HATCHES = {STORAGE: '//', TRANSFER: '..'}
_DPI = 110
# Inches.
_ROW_HEIGHT = 0.34


def check(flag: str, path: str) -> None:
    """Checks, before the measurements, that a figure can be drawn and written.

    Raises:
      ConfigError: matplotlib is not installed, the path does not end with .png, or its folder is not writable.
    """
    if not path.endswith('.png'):
        raise ConfigError(f'--{flag}={path}: must be the path of a .png file.')
    folder = os.path.dirname(path) or '.'
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise ConfigError(
            f'--{flag}={path}: cannot be written to. Name a file in a folder that exists and is writable.'
        )
    if importlib.util.find_spec('matplotlib') is None:
        raise ConfigError(f'--{flag}={path}: needs matplotlib, which is not installed: {extras.command("benchmarks")}')


def phases(path: str, where: str, rows: Sequence[Row]) -> None:
    """Draws the CPU time per image of each row as bars, divided into phases."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    drawing = Figure(figsize=(10, 1.6 + _ROW_HEIGHT * len(rows)))
    axes = drawing.subplots()
    outline = {'edgecolor': 'black', 'linewidth': 0.5}
    styles = {phase: {'color': _COLOURS[phase], 'hatch': _HATCHES.get(phase), **outline} for phase in PHASES}
    for place, row in enumerate(rows):
        start, cpu_ms = 0.0, row.spread('cpu_ms')
        for phase in PHASES if row.phases else ():
            # Noise can make the difference of a small phase negative.
            length = max(0.0, row.share(phase) * cpu_ms.median)
            axes.barh(place, length, left=start, **styles[phase])
            start += length
        if not row.phases:
            axes.barh(place, cpu_ms.median, color='0.75', **outline)
        axes.errorbar(cpu_ms.median, place, xerr=_whiskers([cpu_ms]), color='black', capsize=3, linewidth=1)
    names = [f'{row.subject.variant}, {row.subject.pipeline}' for row in rows]
    axes.set(yticks=range(len(rows)), yticklabels=names, axisbelow=True)
    axes.set_xlabel('CPU time per image (ms): median, least and greatest')
    axes.invert_yaxis()
    axes.grid(axis='x', color='0.9')
    patches = [Patch(facecolor=_COLOURS[phase], hatch=_HATCHES.get(phase), label=phase, **outline) for phase in PHASES]
    axes.legend(handles=patches, loc='upper left', bbox_to_anchor=(1, 1), frameon=False)
    axes.set_title(f'The input pipeline, phase by phase\n{where}', fontsize=10)
    _save(drawing, path)


def sweep(path: str, where: str, field: str, rows: Sequence[Row]) -> None:
    """Draws CPU time, throughput and memory against the values of a flag."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(13, 4))
    values = [int(row.subject.pipeline) for row in rows]
    for axes, label, spreads, colour in zip(
        drawing.subplots(1, 3),
        ('CPU time per image (ms)', 'images per second', 'peak of resident memory (MB)'),
        ([row.spread(name) for row in rows] for name in ('cpu_ms', 'images_per_second', 'peak_mb')),
        _COLOURS.values(),
    ):
        medians = [spread.median for spread in spreads]
        axes.errorbar(values, medians, yerr=_whiskers(spreads), marker='o', color=colour, capsize=3)
        axes.set_xscale('log', base=2)
        axes.set(xticks=values, xticklabels=[f'{value:,}' for value in values], xlabel=f'--{field}', ylabel=label)
        axes.set_ylim(bottom=0)
        axes.grid(color='0.9')
    drawing.subplots_adjust(wspace=0.35, top=0.85)
    title = f'The input pipeline of training, over --{field}: median, least and greatest'
    drawing.suptitle(f'{title}\n{where}', fontsize=10)
    _save(drawing, path)


def _whiskers(spreads: Sequence[Spread]) -> Any:
    return [
        [spread.median - spread.least for spread in spreads],
        [spread.greatest - spread.median for spread in spreads],
    ]


def _save(drawing: Any, path: str) -> None:
    from console import outputs

    with outputs.unfinished_file(path) as unfinished:
        drawing.savefig(unfinished, format='png', dpi=_DPI, bbox_inches='tight')
