"""The figures of an evaluation report: the confusion matrix and the reliability diagram."""

from typing import Any, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import StrMethodFormatter

from inception_v3.commands.drawing import Look, dress, png
from inception_v3.commands.evaluate_report.analysis import BINS, Bin

# With more classes, there is no room for names and numbers.
_LABELLED_AT_MOST = 30
_LONGEST_NAME = 18


def confusion_matrix(confusion: np.ndarray, names: Sequence[str], look: Look, first: int = 0) -> bytes:
    """Draws the confusion matrix of the classes that occur, as a PNG file.

    Colours show fractions of a label's images. Up to 30 classes are shown with names and numbers.

    Args:
      confusion: int64 [num_classes, num_classes], images by label and predicted class.
      names: names of all classes, in the same order.
      look: the colours.
      first: the first label that is shown, 1 to leave out a background without images. Images classified as
        the background still count in their label's row.
    """
    images = confusion.sum(axis=1)
    occurring = first + np.flatnonzero((confusion.sum(axis=0) + images)[first:])
    counts = confusion[np.ix_(occurring, occurring)]
    shares = counts / np.maximum(1, images[occurring])[:, np.newaxis]
    is_labelled = len(occurring) <= _LABELLED_AT_MOST
    side = max(4.5, 0.42 * len(occurring)) if is_labelled else 9.5
    figure, axes = _axes(side + 1.6, side, look)
    colours = LinearSegmentedColormap.from_list('share', [look.paper, look.good, look.most])
    # On a square-root scale, single images are visible beside whole classes.
    image = axes.imshow(shares, cmap=colours, norm=PowerNorm(0.5, 0, 1), interpolation='nearest')
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, ticks=[0, 0.01, 0.1, 0.25, 0.5, 1])
    bar.set_label("fraction of the label's images", color=look.ink)
    bar.ax.set_yticklabels(['0', '1 %', '10 %', '25 %', '50 %', '100 %'])
    bar.ax.tick_params(colors=look.ink)
    bar.outline.set_edgecolor(look.faint)
    axes.set_xlabel('predicted class', color=look.ink)
    axes.set_ylabel('label', color=look.ink)
    if is_labelled:
        shown = [_short(names[label]) for label in occurring]
        is_long = max(map(len, shown)) > 3
        axes.set_xticks(range(len(shown)))
        axes.set_xticklabels(shown, rotation=90 if is_long else 0)
        axes.set_yticks(range(len(shown)))
        axes.set_yticklabels(shown)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                share = np.sqrt(shares[row, column])
                # On medium and strong colours, the background colour has more contrast.
                colour = look.ink if share < 0.45 else look.paper
                axes.text(column, row, f'{count:,}', ha='center', va='center', color=colour, fontsize=8)
    else:
        ticks = np.linspace(0, len(occurring) - 1, 11).astype(int)
        for set_ticks, set_labels in (
            (axes.set_xticks, axes.set_xticklabels),
            (axes.set_yticks, axes.set_yticklabels),
        ):
            set_ticks(ticks)
            set_labels([str(label) for label in occurring[ticks]])
    return png(figure)


def reliability_diagram(bins: Sequence[Bin], error: float, look: Look) -> bytes:
    """Draws the top-1 accuracy and the number of images by confidence, as a PNG file.

    Args:
      bins: the images grouped by confidence.
      error: the expected calibration error.
      look: the colours.
    """
    figure, axes = _axes(6.2, 6.4, look)
    axes.remove()
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={'height_ratios': [3, 1], 'hspace': 0.08})
    for each in (above, below):
        dress(each, look)
        each.grid(color=look.faint, alpha=0.25, linewidth=0.6)
        each.set_axisbelow(True)
    used = [b for b in bins if b.images]
    centres, width = [(b.lower + b.upper) / 2 for b in used], 1 / BINS
    tops = [b.top_1 for b in used]
    above.bar(centres, tops, width, color=look.good, edgecolor=look.paper, label='top-1')
    above.hlines(
        [b.confidence for b in used],
        [b.lower for b in used],
        [b.upper for b in used],
        color=look.bad,
        linewidth=3,
        label='mean confidence',
        path_effects=[Stroke(linewidth=5, foreground=look.paper), Normal()],
    )
    above.plot([0, 1], [0, 1], '--', color=look.faint, linewidth=1, zorder=0.5)
    above.set(xlim=(0, 1), ylim=(0, 1))
    above.set_ylabel('top-1 of the images', color=look.ink)
    legend = above.legend(
        loc='lower right', bbox_to_anchor=(1, 1), ncol=2, frameon=False, fontsize=9, columnspacing=1, handlelength=1.2
    )
    for text in legend.get_texts():
        text.set_color(look.ink)
    above.set_title(f'expected calibration error {error:.2%}', color=look.ink, fontsize=9, loc='left')
    below.bar(centres, [b.images for b in used], width, color=look.faint, edgecolor=look.paper)
    below.set_yscale('log')
    below.yaxis.set_major_formatter(StrMethodFormatter('{x:,.0f}'))
    below.set_ylim(bottom=0.5)
    below.set_ylabel('images', color=look.ink)
    below.set_xlabel('confidence: probability of the most probable class', color=look.ink)
    return png(figure)


def _axes(width: float, height: float, look: Look) -> Any:
    figure = Figure(figsize=(width, height), facecolor=look.paper)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    dress(axes, look)
    return figure, axes


def _short(name: str) -> str:
    # matplotlib interprets a dollar sign as the start of a formula.
    shown = name.replace('$', r'\$')
    return shown if len(shown) <= _LONGEST_NAME else shown[: _LONGEST_NAME - 1] + '…'
