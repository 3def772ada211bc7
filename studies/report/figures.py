"""The figures of a report, as PNG files."""

import re
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from studies.report import findings, statistics, tables
from studies.report.drawing import FAINT, GRID, dashes, lay_out, png
from studies.report.findings import CaseCurve, CaseFindings, Findings
from studies.report.palette import Sign, sign_of
from studies.report.runs import LOSS, METRICS, THROUGHPUT, Metric
from studies.report.statistics import Difference

_WIDTH = 11.0  # inches
_DPI = 130
_TEXT = '#1b1f24'
# Names are broken into lines that fit a panel or half a legend. Size in points, widths and heights in inches.
_NAME_SIZE = 9
_NAME_WIDTH = 4.4
_NAME_LINE = 0.15
# Heights in inches: of a case's row with a name of one line, and of the space above the first row.
_ROW, _ABOVE_ROWS = 0.46, 0.37
_LEGEND_ROW = 0.22


def finals(found: Findings) -> bytes:
    """The most important metric of each case at the last step, and its difference from the first case."""
    name = found.comparison.report[0]
    metric = METRICS[name]
    figure, (left, right) = _panels(1, 2, height=1.1 + _row_height(found.cases) * max(len(found.cases), 2))
    values = [(metric.scale * np.array([*each.finals[name].values()])).tolist() for each in found.cases]
    _draw_ends(left, found.cases, values)
    left.set_xlabel(tables.with_unit(metric.label, metric.unit))
    left.set_title('At the last step')
    from_first = {
        pair.later.name: pair.differences[name] for pair in found.pairs if pair.earlier == found.cases[0].case
    }
    _draw_differences(right, found.cases, [from_first.get(each.case.name) for each in found.cases], metric)
    right.set_title(f'Difference from the first case, {tables.percent(statistics.CONFIDENCE)} interval')
    return _png(figure, found)


def curves(found: Findings) -> bytes:
    """Evaluation metrics and training loss by step, or by epoch if batch sizes differ."""
    panels = [(METRICS[name], [each.evaluations[name] for each in found.cases]) for name in found.comparison.report]
    panels.append((LOSS, [each.loss for each in found.cases]))
    rows = -(-len(panels) // 2)
    figure, all_axes = _panels(rows, 2, height=3.3 * rows + 0.4 + _legend_height(found))
    for axes, (metric, of_cases) in zip(all_axes, panels):
        for index, (each, curve) in enumerate(zip(found.cases, of_cases)):
            _draw_curve(axes, curve, sign_of(index), metric.scale, _per_step(each, found), bool(metric.unit))
        axes.set_title(f'Validation: {metric.label}' if metric != LOSS else 'Training: loss')
        axes.set_ylabel(tables.with_unit(metric.label, metric.unit))
        axes.set_xlabel(_axis_name(found))
        axes.set_xlim(left=0)
        _note_if_empty(axes)
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    _legend(figure, found)
    return _png(figure, found)


def schedule_and_speed(found: Findings) -> bytes:
    """The learning rate by step, and the images per second of the training."""
    height = max(3.3, 1.1 + _row_height(found.cases) * len(found.cases))
    figure, (left, right) = _panels(1, 2, height=height + _legend_height(found))
    drawn = [(index, each) for index, each in enumerate(found.cases) if each.schedule]
    for place, (index, each) in enumerate(drawn):
        steps, rates = np.array(each.schedule).T
        same = sum(later.schedule == each.schedule for _, later in drawn[place + 1 :])
        sign = sign_of(index)
        left.plot(
            steps * _per_step(each, found),
            rates,
            drawstyle='steps-post',
            color=sign.light,
            # Wider than equal schedules drawn over it, so that all are visible.
            linewidth=min(1.8 + 2.2 * same, 10),
            linestyle=dashes(sign),
        )
    left.set_ylim(bottom=0)
    left.set_title('Learning rate')
    left.set_ylabel('learning rate')
    left.set_xlabel(_axis_name(found))
    left.set_xlim(left=0)
    _note_if_empty(left)
    _draw_ends(right, found.cases, [[*each.throughputs.values()] for each in found.cases])
    right.set_xlim(0, 1.04 * right.get_xlim()[1])
    right.set_title('Training: images/s')
    right.set_xlabel(tables.with_unit(THROUGHPUT.label, THROUGHPUT.unit))
    _legend(figure, found)
    return _png(figure, found)


def _panels(rows: int, columns: int, height: float) -> Tuple[Figure, List[Any]]:
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, facecolor='white')
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in all_axes:
        lay_out(axes)
        for side in ('bottom', 'left'):
            axes.spines[side].set_color(FAINT)
        axes.tick_params(colors=_TEXT, labelsize=9)
        axes.title.set_fontsize(11)
    return figure, [*all_axes]


def _draw_curve(axes: Any, curve: CaseCurve, sign: Sign, scale: float, per_step: float, marked: bool) -> None:
    if not curve.steps:
        return
    if len(curve.curves) > 1:
        for one in curve.curves:
            axes.plot(
                np.array(one.steps) * per_step, scale * np.array(one.values), color=sign.light, alpha=0.4, linewidth=0.7
            )
    x = np.array(curve.steps) * per_step
    mean = scale * np.array([summary.mean for summary in curve.summaries])
    deviation = scale * np.array([np.nan if s.deviation is None else s.deviation for s in curve.summaries])
    axes.fill_between(x, mean - deviation, mean + deviation, color=sign.light, alpha=0.16, linewidth=0)
    axes.plot(
        x,
        mean,
        color=sign.light,
        linewidth=1.9,
        linestyle=dashes(sign),
        marker=sign.matplotlib_mark,
        markersize=5,
        markevery=max(1, len(x) // (25 if marked else 10)),
    )


def _draw_ends(axes: Any, cases: Sequence[CaseFindings], values: Sequence[Sequence[float]]) -> None:
    """Draws one row per case: its runs, and their mean with one standard deviation on either side."""
    for row, of_case in enumerate(values):
        sign, summary = sign_of(row), statistics.summarize(of_case)
        if not summary.n:
            continue
        axes.errorbar(
            summary.mean,
            row,
            xerr=summary.deviation,
            color=sign.light,
            marker=sign.matplotlib_mark,
            markersize=8,
            capsize=3.5,
            linewidth=1.6,
        )
        if summary.n > 1:
            axes.plot(
                of_case,
                [row] * summary.n,
                linestyle='none',
                marker=sign.matplotlib_mark,
                markersize=6,
                markerfacecolor='none',
                color=sign.light,
            )
    _name_rows(axes, cases)
    _note_if_empty(axes)


def _draw_differences(
    axes: Any, cases: Sequence[CaseFindings], differences: Sequence[Optional[Difference]], metric: Metric
) -> None:
    """Draws the rows of `_draw_ends` again: the difference of the means, and its interval if there is one."""
    for row, difference in enumerate(differences):
        if not difference:
            continue
        sign, middle = sign_of(row), metric.scale * difference.mean
        interval: Optional[List[List[float]]] = None
        if difference.low is not None and difference.high is not None:
            interval = [[middle - metric.scale * difference.low], [metric.scale * difference.high - middle]]
        axes.errorbar(
            middle,
            row,
            xerr=interval,
            color=sign.light,
            marker=sign.matplotlib_mark,
            markersize=7,
            markerfacecolor=sign.light if interval else 'none',
            capsize=3.5,
            linewidth=1.6,
        )
    axes.axvline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel(tables.with_unit(f'difference of {metric.label}', metric.difference_unit))
    _name_rows(axes, cases)
    _note_if_empty(axes)


def _name_rows(axes: Any, cases: Sequence[CaseFindings]) -> None:
    """Writes names above their rows, the first row at the top: a name may be as long as the figure is wide."""
    labels, height = _labels(cases), _row_height(cases)
    axes.set_ylim(max(len(cases), 1) - 0.5, -(_ABOVE_ROWS + height - _ROW) / height)
    axes.set_yticks([])
    axes.grid(axis='y', visible=False)
    axes.spines['left'].set_visible(False)
    for row, label in enumerate(labels):
        axes.axhline(row, color=GRID, linewidth=0.8, zorder=0)
        axes.annotate(
            label,
            *((0.005, row), (0, 8)),
            xycoords=axes.get_yaxis_transform(),
            textcoords='offset points',
            fontsize=_NAME_SIZE,
            color=FAINT,
            va='bottom',
        )


def _row_height(cases: Sequence[CaseFindings]) -> float:
    return _ROW + _NAME_LINE * (_most_lines(cases) - 1)


def _most_lines(cases: Sequence[CaseFindings]) -> int:
    return max((len(label.splitlines()) for label in _labels(cases)), default=1)


def _labels(cases: Sequence[CaseFindings]) -> List[str]:
    """The names of the cases, broken into lines but never shortened: any part may distinguish a case."""
    # matplotlib would read text between dollar signs as a formula.
    return ['\n'.join(_broken(each.case.name)).replace('$', r'\$') for each in cases]


def _broken(name: str) -> List[str]:
    """The lines of a name: broken between settings, else inside a flag's name, else anywhere."""
    lines = ['']
    for setting in re.split('(?<=[,/ ])', name):
        parts = [setting]
        if _width(setting) > _NAME_WIDTH:
            parts = re.split('(?<=[_=])', setting)
        if max(map(_width, parts)) > _NAME_WIDTH:
            parts = [*setting]
        for part in parts:
            if lines[-1] and _width(lines[-1] + part) > _NAME_WIDTH:
                lines.append('')
            lines[-1] += part
    return lines


def _width(text: str) -> float:
    """The width of a text, in inches."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=_NAME_SIZE), ismath=False)
    return width / 72


def _note_if_empty(axes: Any) -> None:
    """Writes a note into empty axes."""
    curves = [line for line in axes.lines if line.get_color() not in (GRID, FAINT)]
    if not curves and not axes.containers:
        axes.text(0.5, 0.5, 'no data yet', transform=axes.transAxes, ha='center', va='center', color=FAINT)


def _legend(figure: Figure, found: Findings) -> None:
    handles = [
        Line2D(
            *([], []),
            color=sign.light,
            linestyle=dashes(sign),
            marker=sign.matplotlib_mark,
            markersize=5,
            linewidth=1.9,
        )
        for sign in map(sign_of, range(len(found.cases)))
    ]
    legend = figure.legend(
        *(handles, [''] * len(handles)),
        loc='lower center',
        ncol=_legend_columns(found),
        frameon=False,
        fontsize=_NAME_SIZE,
        handlelength=4,
    )
    # Set afterwards, because matplotlib drops labels that begin with an underscore.
    for text, label in zip(legend.get_texts(), _labels(found.cases)):
        text.set_text(label)


def _legend_columns(found: Findings) -> int:
    lines = [line for each in found.cases for line in _broken(each.case.name)]
    widest = max(map(_width, lines), default=0)
    # The line beside a name and the gap to the next column take 0.9 inches.
    return max(1, min(len(found.cases), int(_WIDTH // (widest + 0.9))))


def _legend_height(found: Findings) -> float:
    row = _LEGEND_ROW + _NAME_LINE * (_most_lines(found.cases) - 1)
    return row * -(-len(found.cases) // _legend_columns(found)) + 0.1


def _per_step(each: CaseFindings, found: Findings) -> float:
    """The length of a step on the horizontal axis."""
    return 1 / each.steps_per_epoch if findings.has_several_batch_sizes(found) and each.steps_per_epoch else 1


def _axis_name(found: Findings) -> str:
    return 'epoch' if findings.has_several_batch_sizes(found) else 'step'


def _png(figure: Figure, found: Findings) -> bytes:
    # Room for the legend below the axes.
    bottom = _legend_height(found) / figure.get_figheight() if figure.legends else 0
    figure.tight_layout(rect=(0, bottom, 1, 1), w_pad=2, h_pad=1.5)
    return png(figure)
