"""The figures of a report: the content of their panels, which the page shows too, and the PNG files."""

import math
import textwrap
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.drawing import FAINT, lay_out, png, sign_of
from studies.report.runs import LOSS, THROUGHPUT, Case, Comparison
from studies.report.statistics import difference, summarize

_LINE = 64  # Characters of a case's name on a line.
_WIDTH, _ROW, _NAME_LINE = 11.0, 0.46, 0.15  # inches
_NAME: Any = {'size': 8, 'family': 'monospace'}
_CHARACTER = 0.6022 * _NAME['size'] / 72  # The width of a character of a name, in inches.


class Line(NamedTuple):
    """The values of a case or of a run: by step or epoch, or one value at step 0 in a panel of rows.

    `lows` and `highs` are the ends of its band or its bar; NaN without one.
    """

    name: str
    values: Sequence[float]
    steps: Sequence[float] = (0,)
    lows: Sequence[float] = (math.nan,)
    highs: Sequence[float] = (math.nan,)


class Panel(NamedTuple):
    """A panel: a line for each case, with those of its runs if there are several; `axis` is the label of the values."""

    title: str
    axis: str
    cases: Sequence[Tuple[Line, Sequence[Line]]]
    # The unit of the steps, 'step' or 'epoch'; without, each case has a row with one value.
    steps: str = ''
    # Whether the axis of the values begins at zero.
    from_zero: bool = False
    is_difference: bool = False


def finals(comparison: Comparison, name: str) -> Panel:
    """A metric of each case at the last step."""
    metric = comparison.metrics[name]
    rows = [_row(case, case.finals(name)) for case in comparison.cases]
    return Panel(f'At the last step: {metric.label}', metric.heading, rows)


def throughput(comparison: Comparison) -> Panel:
    """The images per second of the training."""
    rows = [_row(case, case.throughputs) for case in comparison.cases]
    return Panel('Training: images/s', THROUGHPUT.heading, rows, from_zero=True)


def _row(case: Case, values: Mapping[object, float]) -> Tuple[Line, Sequence[Line]]:
    runs = [Line(case.by_key[key].name, [value]) for key, value in values.items()]
    return _means(case, [0], [[*values.values()]]), runs if len(runs) > 1 else ()


def _means(case: Case, steps: Sequence[int], values: Sequence[Sequence[float]]) -> Line:
    summaries = [summarize(at_step) for at_step in values]
    lows, highs = ([each.mean + side * each.deviation for each in summaries] for side in (-1, 1))
    return Line(case.name, [each.mean for each in summaries], steps, lows, highs)


def differences(comparison: Comparison, name: str) -> Panel:
    """The difference of each later case from the first, with its interval."""
    metric, rows = comparison.metrics[name], []
    for case in comparison.cases:
        first = comparison.cases[0]
        found = difference(case.finals(name), first.finals(name)) if case is not first else None
        value, low, high = found or (math.nan, math.nan, math.nan)
        rows.append((Line(case.name, [value], lows=[low], highs=[high]), ()))
    axis = f'difference of {metric.label}, {metric.difference_unit}'
    return Panel('Difference from the first case, 95 % interval', axis, rows, is_difference=True)


def curves(comparison: Comparison) -> List[Panel]:
    """Evaluation metrics and training loss by step, or by epoch if the cases' batch sizes differ."""
    panels = []
    for name, metric in (*comparison.metrics.items(), ('', LOSS)):
        lines = []
        for case in comparison.cases:
            of_runs = [run.values(name) if name else run.losses for run in case.runs]
            steps = sorted({step for of_run in of_runs for step in of_run})
            mean = _means(case, steps, [[of_run[step] for of_run in of_runs if step in of_run] for step in steps])
            runs = [Line(run.name, [*values.values()], [*values]) for run, values in zip(case.runs, of_runs)]
            mean, *runs = (_placed(comparison, case, line) for line in (mean, *runs))
            lines.append((mean, runs if len(runs) > 1 else ()))
        title = f'Validation: {metric.label}' if name else 'Training: loss'
        panels.append(Panel(title, metric.heading, lines, _unit(comparison)))
    return panels


def schedule(comparison: Comparison) -> Panel:
    """The learning rate by step or epoch."""
    rates = [(case, case.schedule) for case in comparison.cases]
    lines = [(_placed(comparison, case, Line(case.name, [*of.values()], [*of])), ()) for case, of in rates]
    return Panel('Learning rate', 'learning rate', lines, _unit(comparison), from_zero=True)


def _unit(comparison: Comparison) -> str:
    return 'epoch' if comparison.by_epoch else 'step'


def _placed(comparison: Comparison, case: Case, line: Line) -> Line:
    length = (comparison.by_epoch and case.steps_per_epoch) or 1
    return line._replace(steps=[step / length for step in line.steps])


def broken(name: str, width: int = _LINE) -> List[str]:
    """The lines of a case's name, which are never shortened."""
    return textwrap.wrap(name, width, drop_whitespace=False, replace_whitespace=False) or ['']


def _panels_of_finals(comparison: Comparison) -> List[Panel]:
    name = next(iter(comparison.metrics))
    return [finals(comparison, name), differences(comparison, name)]


# By the names of their files: the text in place of the picture, and its panels.
PICTURES: Dict[str, Tuple[str, Callable[[Comparison], List[Panel]]]] = {
    'finals.png': ('results at the last step, and differences between cases', _panels_of_finals),
    'curves.png': ('learning curves', curves),
    'schedule.png': (
        'learning rate by step, and images per second',
        lambda comparison: [schedule(comparison), throughput(comparison)],
    ),
}


def pictures(comparison: Comparison) -> Dict[str, bytes]:
    """The contents of the PNG files, by name."""
    return {
        name: png(draw(comparison, panels(comparison)), bbox_inches='tight') for name, (_, panels) in PICTURES.items()
    }


def draw(comparison: Comparison, panels: Sequence[Panel]) -> Figure:
    """Draws panels in two columns; a legend names the cases of curves."""
    has_curves, rows = any(panel.steps for panel in panels), -(-len(panels) // 2)
    names = ['\n'.join(broken(case.name)) for case in comparison.cases]
    lines = max((name.count('\n') for name in names), default=0)
    of_rows = 1.1 + (_ROW + _NAME_LINE * lines) * max(len(names), 2)
    height = rows * max(3.3 if panel.steps else of_rows for panel in panels)
    figure = Figure(figsize=(_WIDTH, height), dpi=130, facecolor='white', constrained_layout=True)
    all_axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for place, axes in enumerate(all_axes):
        axes.set_visible(place < len(panels))
    for axes, panel in zip(all_axes, panels):
        lay_out(axes)
        axes.set_title(panel.title, size=11)
        if panel.steps:
            _draw_lines(axes, panel)
        else:
            _draw_rows(axes, panel)
            # matplotlib would read text between dollar signs as a formula.
            axes.set_yticklabels([name.replace('$', r'\$') for name in names] if axes is all_axes[0] else [], **_NAME)
    if has_curves:
        _draw_legend(figure, names)
    return figure


def _draw_lines(axes: Any, panel: Panel) -> None:
    for index, (line, runs) in enumerate(panel.cases):
        sign = sign_of(index)
        for run in runs:
            axes.plot(run.steps, run.values, color=sign.light, alpha=0.4, linewidth=0.7)
        style = {'color': sign.light, 'linestyle': sign.linestyle, 'linewidth': 1.9}
        if panel.from_zero:
            style.update(drawstyle='steps-post')
        elif line.steps:
            axes.fill_between(line.steps, line.lows, line.highs, color=sign.light, alpha=0.16, linewidth=0)
            style.update(marker=sign.matplotlib_mark, markersize=5, markevery=max(1, len(line.steps) // 15))
        axes.plot(line.steps, line.values, **style)
    axes.set(ylabel=panel.axis, xlabel=panel.steps)
    axes.set_xlim(left=0)
    if panel.from_zero:
        axes.set_ylim(bottom=0)


def _draw_rows(axes: Any, panel: Panel) -> None:
    for row, (line, runs) in enumerate(panel.cases):
        sign, value = sign_of(row), line.values[0]
        # Of means, a mark without a bar is that of a single run; of differences, it has too few runs for an interval.
        hollow = {'markerfacecolor': 'none'}
        bar = {'xerr': [[value - line.lows[0]], [line.highs[0] - value]], 'capsize': 3.5, 'linewidth': 1.6}
        style = {'color': sign.light, 'marker': sign.matplotlib_mark, 'linestyle': 'none'}
        axes.errorbar(value, row, markersize=8, **style, **(bar if np.isfinite(line.lows[0]) else hollow))
        axes.plot([run.values[0] for run in runs], [row] * len(runs), markersize=6, **style, **hollow)
    if panel.is_difference:
        axes.axvline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    if panel.from_zero:
        axes.set_xlim(0, 1.04 * axes.get_xlim()[1])
    axes.set(ylim=(max(len(panel.cases), 1) - 0.5, -0.5), yticks=range(len(panel.cases)), xlabel=panel.axis)


def _draw_legend(figure: Figure, names: Sequence[str]) -> None:
    """Draws the signs and names of the cases below a figure, which grows when it is written."""
    signs = [sign_of(index) for index in range(len(names))]
    handles = [
        Line2D([], [], color=sign.light, linestyle=sign.linestyle, marker=sign.matplotlib_mark, markersize=5)
        for sign in signs
    ]
    widest = max((len(line) for name in names for line in name.split('\n')), default=0)
    # The line beside a name and the gap to the next column take 0.9 inches.
    columns = max(1, min(len(signs), int(_WIDTH / (widest * _CHARACTER + 0.9))))
    place: Any = {'loc': 'upper center', 'bbox_to_anchor': (0.5, 0), 'ncol': columns, 'frameon': False}
    legend = figure.legend(handles, [''] * len(handles), handlelength=4, prop=_NAME, **place)
    # Set afterwards, because matplotlib drops labels that begin with an underscore.
    for text, name in zip(legend.get_texts(), names):
        text.set_text(name.replace('$', r'\$'))
