"""The figure of a plan: the learning rate, and what the averages remember."""

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from inception_v3.commands.drawing import Look, dress, png
from inception_v3.commands.estimate import Estimate

_POINTS = 300
# The averages are drawn as far back as the longest of their windows, times this.
_WINDOWS = 5


def draw(estimate: Estimate, look: Look) -> bytes:
    """Draws the plan of a run as a PNG file."""
    figure = Figure(figsize=(11, 7), facecolor=look.paper)
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, gridspec_kw={'height_ratios': [3, 2], 'hspace': 0.42})
    for axes in (above, below):
        dress(axes, look)
        axes.grid(color=look.faint, alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ('top', 'right'):
            axes.spines[side].set_visible(False)
    _draw_rates(above, estimate, look)
    _draw_averages(below, estimate, look)
    return png(figure)


def _draw_rates(axes: Any, estimate: Estimate, look: Look) -> None:
    over = estimate.overshoot
    epochs = np.array(estimate.steps) / estimate.steps_per_epoch
    axes.step(
        epochs, estimate.documented, where='post', color=look.faint, linestyle='--', label='documented, no warm-up'
    )
    axes.step(epochs, estimate.rates, where='post', color=look.good, linewidth=2, label='this run')
    if over:
        axes.axvspan(over.first, over.last + 1, color=look.bad, alpha=0.3, label='overshoot of the warm-up')
        axes.annotate(
            f'{over.rate:.4g} instead of {over.plain:.4g}',
            (over.epoch + 0.5, over.rate),
            (18, 4),
            textcoords='offset points',
            color=look.bad,
            fontsize=9,
        )
    axes.set_xlim(0, estimate.epochs)
    axes.set_ylim(0, 1.12 * max(*estimate.rates, *estimate.documented))
    axes.set_title('learning rate', loc='left', color=look.ink, fontsize=10)
    axes.set_xlabel('epoch', color=look.ink)
    _legend(axes, look, 'upper right')


def _draw_averages(axes: Any, estimate: Estimate, look: Look) -> None:
    shown = [
        (estimate.statistics, 'batch normalization, decay {:g}', look.good, '-'),
        (estimate.averages, 'averages of the weights, decay {:g}', look.bad, '-.'),
    ]
    longest = max(average.window for average, *_ in shown if average)
    steps = np.linspace(0, _WINDOWS * longest, _POINTS)
    for average, label, colour, style in shown:
        if average:
            share = 1 - np.float64(average.decay) ** steps
            axes.plot(steps, share, style, color=colour, label=label.format(average.decay), linewidth=2)
            axes.plot([average.window], [1 - average.decay**average.window], 'o', color=colour, markersize=7)
    axes.set_xlim(0, steps[-1])
    axes.set_ylim(0, 1.03)
    axes.set_title(
        'share of an average that comes from its last steps; the dots are the windows, 1 / (1 - decay) steps',
        loc='left',
        color=look.ink,
        fontsize=10,
    )
    axes.set_xlabel('last steps', color=look.ink)
    _legend(axes, look, 'lower right')


def _legend(axes: Any, look: Look, where: str) -> None:
    for text in axes.legend(loc=where, frameon=False, fontsize=9).get_texts():
        text.set_color(look.ink)
