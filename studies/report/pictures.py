"""The figures of a report, as PNG files."""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from studies.report import figures
from studies.report.drawing import FAINT, dashes, lay_out, png
from studies.report.figures import Lines, Rows
from studies.report.findings import Findings
from studies.report.palette import sign_of

_WIDTH, _ROW, _NAME_LINE = 11.0, 0.46, 0.15  # inches
_NAME: Any = {'size': 8, 'family': 'monospace'}
_CHARACTER = 0.6022 * _NAME['size'] / 72  # The width of a character of a name, in inches.


def finals(found: Findings) -> Figure:
    """The most important metric of each case at the last step, and its difference from the first case."""
    name = found.comparison.report[0]
    figure, (left, right) = _panels(1, 1.1 + _height_of_rows(found))
    _draw_rows(left, figures.finals(found, name), found)
    _draw_rows(right, figures.differences(found, name), found)
    right.set_yticklabels([])
    return figure


def curves(found: Findings) -> Figure:
    """Evaluation metrics and training loss by step, or by epoch if batch sizes differ."""
    panels = figures.curves(found)
    figure, all_axes = _panels(-(-len(panels) // 2), 3.3 * -(-len(panels) // 2))
    for axes, panel in zip(all_axes, panels):
        _draw_lines(axes, panel, found)
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    _draw_legend(figure, found)
    return figure


def schedule_and_speed(found: Findings) -> Figure:
    """The learning rate by step, and the images per second of the training."""
    figure, (left, right) = _panels(1, max(3.3, 1.1 + _height_of_rows(found)))
    _draw_lines(left, figures.schedule(found), found, is_schedule=True)
    left.set_ylim(bottom=0)
    _draw_rows(right, figures.throughput(found), found)
    right.set_xlim(0, 1.04 * right.get_xlim()[1])
    right.set_yticklabels([])
    _draw_legend(figure, found)
    return figure


# By the names of their files: the text in place of the picture, and the function that draws it.
PICTURES: Dict[str, Tuple[str, Callable[[Findings], Figure]]] = {
    'finals.png': ('results at the last step, and differences between cases', finals),
    'curves.png': ('learning curves', curves),
    'schedule.png': ('learning rate by step, and images per second', schedule_and_speed),
}


def pictures(found: Findings) -> Dict[str, bytes]:
    """The contents of the PNG files, by name."""
    return {name: png(draw(found), bbox_inches='tight') for name, (_, draw) in PICTURES.items()}


def _panels(rows: int, height: float) -> Tuple[Figure, List[Any]]:
    figure = Figure(figsize=(_WIDTH, height), dpi=130, facecolor='white', constrained_layout=True)
    all_axes = [*figure.subplots(rows, 2, squeeze=False).ravel()]
    for axes in all_axes:
        lay_out(axes)
        axes.title.set_fontsize(11)
    return figure, all_axes


def _draw_lines(axes: Any, panel: Lines, found: Findings, is_schedule: bool = False) -> None:
    for index, (line, runs) in enumerate(panel.cases):
        sign, step = sign_of(index), figures.length_of_step(found, index, found.by_epoch)
        for run in runs:
            axes.plot(np.array(run.steps) * step, run.values, color=sign.light, alpha=0.4, linewidth=0.7)
        x, y = np.array(line.steps) * step, np.array(line.values)
        style = {'color': sign.light, 'linestyle': dashes(sign), 'linewidth': 1.9}
        if is_schedule:
            style.update(drawstyle='steps-post', linewidth=min(1.8 + 2.2 * figures.schedule_width(panel, index), 10))
        elif len(x):
            axes.fill_between(x, y - line.deviations, y + line.deviations, color=sign.light, alpha=0.16, linewidth=0)
            style.update(marker=sign.matplotlib_mark, markersize=5, markevery=max(1, len(x) // 15))
        axes.plot(x, y, **style)
    axes.set_title(panel.title)
    axes.set_ylabel(panel.axis)
    axes.set_xlabel('epoch' if found.by_epoch else 'step')
    axes.set_xlim(left=0)
    _note_if_empty(axes, any(line.steps for line, _ in panel.cases))


def _draw_rows(axes: Any, panel: Rows, found: Findings) -> None:
    for row, mark in enumerate(panel.marks):
        sign = sign_of(row)
        # Of means, a mark without a bar is that of a single run; of differences, it has too few runs for an interval.
        hollow = {'markerfacecolor': 'none'}
        bar = {'xerr': [[mark.value - mark.low], [mark.high - mark.value]], 'capsize': 3.5, 'linewidth': 1.6}
        style = {'color': sign.light, 'marker': sign.matplotlib_mark, 'linestyle': 'none'}
        axes.errorbar(mark.value, row, markersize=8, **style, **(bar if mark.low == mark.low else hollow))
        axes.plot([value for value, _ in mark.runs.values()], [row] * len(mark.runs), markersize=6, **style, **hollow)
    if panel.metric:
        axes.axvline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(max(len(panel.marks), 1) - 0.5, -0.5)
    axes.set_yticks(range(len(panel.marks)))
    axes.set_yticklabels(_names(found), **_NAME)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.axis)
    _note_if_empty(axes, any(mark.value == mark.value for mark in panel.marks))


def _note_if_empty(axes: Any, has_data: bool) -> None:
    if not has_data:
        axes.text(0.5, 0.5, 'no data yet', transform=axes.transAxes, ha='center', va='center', color=FAINT)


def _names(found: Findings) -> List[str]:
    # matplotlib would read text between dollar signs as a formula.
    return ['\n'.join(figures.broken(each.case.name)).replace('$', r'\$') for each in found.cases]


def _height_of_rows(found: Findings) -> float:
    lines = max((name.count('\n') for name in _names(found)), default=0)
    return (_ROW + _NAME_LINE * lines) * max(len(found.cases), 2)


def _draw_legend(figure: Figure, found: Findings) -> None:
    """Draws the signs and names of the cases below a figure, which grows when it is written."""
    signs = [sign_of(index) for index in range(len(found.cases))]
    handles = [
        Line2D([], [], color=sign.light, linestyle=dashes(sign), marker=sign.matplotlib_mark, markersize=5)
        for sign in signs
    ]
    widest = max((len(line) for each in found.cases for line in figures.broken(each.case.name)), default=0)
    # The line beside a name and the gap to the next column take 0.9 inches.
    columns = max(1, min(len(signs), int(_WIDTH / (widest * _CHARACTER + 0.9))))
    place: Any = {'loc': 'upper center', 'bbox_to_anchor': (0.5, 0), 'ncol': columns, 'frameon': False}
    legend = figure.legend(handles, [''] * len(handles), handlelength=4, prop=_NAME, **place)
    # Set afterwards, because matplotlib drops labels that begin with an underscore.
    for text, name in zip(legend.get_texts(), _names(found)):
        text.set_text(name)
