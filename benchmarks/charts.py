"""Figures of the input pipeline as PNG files, in Okabe and Ito's colours, which the colour-blind can distinguish."""

import os
from typing import Sequence

from benchmarks import drawing
from benchmarks.comparison import Row
from benchmarks.drawing import Panel
from benchmarks.measurement import PHASES
from console import extras
from inception_v3.config import ConfigError

_COLOURS = dict(zip(PHASES, ('#0072B2', '#E69F00', '#009E73')))


def check(flag: str, path: str) -> None:
    """Raises ConfigError unless matplotlib is installed, and the path is that of a .png file that can be written."""
    if not path.endswith('.png'):
        raise ConfigError(f'--{flag}={path}: must be the path of a .png file.')
    if os.path.isdir(path) or not os.access(os.path.dirname(path) or '.', os.W_OK):
        raise ConfigError(f'--{flag}={path}: cannot be written to. Name a file in a folder that exists.')
    extras.require('benchmarks', 'matplotlib')


def phases(where: str, rows: Sequence[Row]) -> bytes:
    """Draws the CPU time per image of each row as bars, divided into phases."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.6 + 0.34 * len(rows)))
    axes = figure.subplots()
    names = [f'{row.pipeline.variant}, {row.pipeline.name}' for row in rows]
    totals = [row.spread('cpu_ms') for row in rows]
    medians = [total.median for total in totals]
    axes.barh(names, [0 if row.phases else median for row, median in zip(rows, medians)], color='0.75')
    starts = [0.0] * len(rows)
    for phase, colour in _COLOURS.items():
        # Noise can make the difference of a small phase negative.
        parts = [max(0.0, row.share(phase)) * median if row.phases else 0.0 for row, median in zip(rows, medians)]
        axes.barh(names, parts, left=starts, color=colour, edgecolor='black', linewidth=0.5, label=phase)
        starts = [start + part for start, part in zip(starts, parts)]
    axes.errorbar(medians, names, xerr=drawing.bars(totals), color='black', capsize=3, linewidth=1, linestyle='')
    axes.set_xlabel('CPU time per image (ms): median, least and greatest')
    axes.invert_yaxis()
    axes.legend(loc='upper left', bbox_to_anchor=(1, 1), frameon=False)
    axes.set_title(f'The input pipeline, phase by phase\n{where}', fontsize=10)
    return drawing.png(figure, dpi=110, bbox_inches='tight')


def sweep(where: str, field: str, rows: Sequence[Row]) -> bytes:
    """Draws CPU time, throughput and memory against the values of a flag."""
    panels = [
        Panel(label, f'--{field}', '', {label: {int(row.pipeline.name): row.spread(name) for row in rows}}, False, True)
        for name, label in (
            ('cpu_ms', 'CPU time per image (ms)'),
            ('images_per_second', 'images per second'),
            ('peak_mb', 'peak of resident memory (MB)'),
        )
    ]
    title = f'The input pipeline of training, over --{field}: median, least and greatest\n{where}'
    return drawing.chart(title, panels, columns=3)
