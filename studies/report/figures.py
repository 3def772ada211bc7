"""The content of a report's figures, in displayed values: pictures and page draw the same."""

import math
import re
from typing import List, Mapping, NamedTuple, Sequence, Tuple

from studies.report import statistics
from studies.report.findings import CaseCurve, CaseFindings, Findings
from studies.report.runs import LOSS, METRICS, THROUGHPUT, Metric
from studies.report.tables import difference, mean, percent, with_unit

_LINE = 64  # Characters of a case's name on a line.


class Mark(NamedTuple):
    """A case's value in a panel of rows.

    Attributes:
      value: NaN without a value.
      low: the lower end of its bar; NaN without a bar.
      high: the upper end of its bar.
      text: the value and its bar, with the unit.
      runs: the values of its runs and their texts, by the names of the runs, if there are several.
    """

    value: float
    low: float
    high: float
    text: str
    runs: Mapping[str, Tuple[float, str]] = {}


class Rows(NamedTuple):
    """A panel with a row for each case, which holds a mark.

    Attributes:
      title: the title.
      axis: the label of its horizontal axis.
      marks: a mark for each case.
      metric: name of the metric whose differences the panel shows; empty if it shows no differences.
    """

    title: str
    axis: str
    marks: Sequence[Mark]
    metric: str = ''


class Line(NamedTuple):
    """Values by step of a case's means or of one of its runs; deviations are NaN where unknown."""

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    texts: Sequence[str]
    deviations: Sequence[float] = ()


class Lines(NamedTuple):
    """A panel by step: for each case the line of its means, and those of its runs if there are several."""

    title: str
    axis: str
    cases: Sequence[Tuple[Line, Sequence[Line]]]


def finals(found: Findings, name: str) -> Rows:
    """A metric of each case at the last step."""
    metric = METRICS[name]
    marks = [_mark(each, each.finals[name], metric) for each in found.cases]
    return Rows(f'At the last step: {metric.label}', with_unit(metric.label, metric.unit), marks)


def throughput(found: Findings) -> Rows:
    """The images per second of the training."""
    marks = [_mark(each, each.throughputs, THROUGHPUT) for each in found.cases]
    return Rows('Training: images/s', with_unit(THROUGHPUT.label, THROUGHPUT.unit), marks)


def _mark(each: CaseFindings, values: Mapping[object, float], metric: Metric) -> Mark:
    of_runs = {
        each.runs[key].name: (metric.scale * value, f'{metric.label} {metric.text(value)} {metric.unit}')
        for key, value in values.items()
    }
    summary = statistics.summarize(values.values())
    middle = metric.scale * summary.mean
    bar = math.nan if summary.deviation is None else metric.scale * summary.deviation
    text = f'{metric.label} {mean(summary, metric)} {metric.unit}\n{_count(summary.n)}'
    return Mark(middle, middle - bar, middle + bar, text, of_runs if len(of_runs) > 1 else {})


def differences(found: Findings, name: str, reference: int = 0) -> Rows:
    """The difference of each case from a reference case, with its interval."""
    metric = METRICS[name]
    from_reference = {}
    for pair in found.pairs:
        known = pair.differences[name]
        if known and reference in (pair.later, pair.earlier):
            is_later = pair.earlier == reference
            from_reference[pair.later if is_later else pair.earlier] = known if is_later else -known
    marks = []
    for index in range(len(found.cases)):
        known = from_reference.get(index)
        low, high = math.nan, math.nan
        if known and known.low is not None and known.high is not None:
            low, high = metric.scale * known.low, metric.scale * known.high
        value = metric.scale * known.mean if known else math.nan
        text = f'minus {found.cases[reference].case.name}\n{metric.label} {difference(known, metric)}'
        marks.append(Mark(value, low, high, f'{text} {metric.difference_unit}'))
    title = f'Difference from the first case, {percent(statistics.CONFIDENCE)} interval'
    return Rows(title, with_unit(f'difference of {metric.label}', metric.difference_unit), marks, name)


def curves(found: Findings) -> List[Lines]:
    """Evaluation metrics and training loss by step."""
    panels = [(f'Validation: {METRICS[name].label}', METRICS[name], name) for name in found.comparison.report]
    panels.append(('Training: loss', LOSS, ''))
    return [
        Lines(
            title,
            with_unit(metric.label, metric.unit),
            [_lines(each, each.evaluations[name] if name else each.loss, metric) for each in found.cases],
        )
        for title, metric, name in panels
    ]


def _lines(each: CaseFindings, curve: CaseCurve, metric: Metric) -> Tuple[Line, Sequence[Line]]:
    means = [metric.scale * summary.mean for summary in curve.summaries]
    deviations = [math.nan if s.deviation is None else metric.scale * s.deviation for s in curve.summaries]
    texts = [
        f'{_place(each, step)}\n{metric.label} {mean(summary, metric)} {metric.unit}\n{_count(summary.n)}'
        for step, summary in zip(curve.steps, curve.summaries)
    ]
    runs = [
        Line(
            one.run.name,
            one.steps,
            [metric.scale * value for value in one.values],
            [
                f'{_place(each, step)}\n{metric.label} {metric.text(value)} {metric.unit}'
                for step, value in zip(one.steps, one.values)
            ],
        )
        for one in curve.curves
    ]
    return Line(each.case.name, curve.steps, means, texts, deviations), runs if len(runs) > 1 else ()


def schedule(found: Findings) -> Lines:
    """The learning rate by step."""
    lines = []
    for each in found.cases:
        texts = [f'from {_place(each, step)}\nlearning rate {rate:.4g}' for step, rate in each.schedule]
        steps, rates = [step for step, _ in each.schedule], [rate for _, rate in each.schedule]
        lines.append((Line(each.case.name, steps, rates, texts), ()))
    return Lines('Learning rate', 'learning rate', lines)


def schedule_width(panel: Lines, case: int) -> int:
    """The number of later cases with the same schedule: a case's line is wider than those drawn over it."""
    (line, _), later = panel.cases[case], panel.cases[case + 1 :]
    return sum((other.steps, other.values) == (line.steps, line.values) for other, _ in later)


def length_of_step(found: Findings, case: int, by_epoch: bool) -> float:
    """The length of a case's step on the horizontal axis."""
    return 1 / (found.cases[case].steps_per_epoch or 1) if by_epoch else 1


def broken(name: str) -> List[str]:
    """The lines of a case's name: broken after separators, else anywhere, but never shortened."""
    lines = ['']
    for part in re.findall(rf'(?s).{{1,{_LINE}}}?(?:[,/_= ]|$)|.{{{_LINE}}}', name):
        if len(lines[-1]) + len(part) > _LINE:
            lines.append('')
        lines[-1] += part
    return lines


def _place(each: CaseFindings, step: int) -> str:
    return f'step {step:,}' + (f', epoch {step / each.steps_per_epoch:.3g}' if each.steps_per_epoch else '')


def _count(n: int) -> str:
    return '1 run' if n == 1 else f'mean of {n} runs'
