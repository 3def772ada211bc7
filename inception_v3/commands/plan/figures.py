"""The figure of a plan: the learning rate, and what the averages remember."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from inception_v3.commands.drawing import BAD, FAINT, GOOD, png
from inception_v3.commands.estimate import Estimate

_POINTS = 300
# The averages are drawn as far back as the longest of their windows, times this.
_WINDOWS = 5


def draw(estimate: Estimate) -> bytes:
    """Draws the plan of a run as a PNG file."""
    figure = Figure(figsize=(11, 7))
    above, below = figure.subplots(2, 1, gridspec_kw={'height_ratios': [3, 2], 'hspace': 0.42})
    _draw_rates(above, estimate)
    _draw_averages(below, estimate)
    for axes, where in ((above, 'upper right'), (below, 'lower right')):
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[['top', 'right']].set_visible(False)
        axes.legend(loc=where, frameon=False, fontsize=9)
    return png(figure)


def _draw_rates(axes: Any, estimate: Estimate) -> None:
    over = estimate.overshoot
    epochs = np.array(estimate.steps) / estimate.steps_per_epoch
    axes.step(epochs, estimate.documented, where='post', color=FAINT, linestyle='--', label='documented, no warm-up')
    axes.step(epochs, estimate.rates, where='post', color=GOOD, linewidth=2, label='this run')
    if over:
        axes.axvspan(over.first, over.last + 1, color=BAD, alpha=0.3, label='overshoot of the warm-up')
        text, place = f'{over.rate:.4g} instead of {over.plain:.4g}', (over.epoch + 0.5, over.rate)
        axes.annotate(text, place, (18, 4), textcoords='offset points', color=BAD, fontsize=9)
    axes.set(xlim=(0, estimate.epochs), ylim=(0, 1.12 * max(*estimate.rates, *estimate.documented)), xlabel='epoch')
    axes.set_title('learning rate', loc='left', fontsize=10)


def _draw_averages(axes: Any, estimate: Estimate) -> None:
    shown = [
        (estimate.statistics, 'batch normalization, decay {:g}', GOOD, '-'),
        (estimate.averages, 'averages of the weights, decay {:g}', BAD, '-.'),
    ]
    longest = max(average.window for average, *_ in shown if average)
    steps = np.linspace(0, _WINDOWS * longest, _POINTS)
    for average, label, colour, style in shown:
        if average:
            share = 1 - np.float64(average.decay) ** steps
            axes.plot(steps, share, style, color=colour, label=label.format(average.decay), linewidth=2)
            axes.plot([average.window], [1 - average.decay**average.window], 'o', color=colour, markersize=7)
    axes.set(xlim=(0, steps[-1]), ylim=(0, 1.03), xlabel='last steps')
    title = 'share of an average that comes from its last steps; the dots are the windows, 1 / (1 - decay) steps'
    axes.set_title(title, loc='left', fontsize=10)
