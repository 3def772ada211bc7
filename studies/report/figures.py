"""The panels of a report, which the page shows, and its PNG files."""

import math
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from benchmarks.drawing import BANDS, STEPS, Panel, chart
from benchmarks.tables import Spread
from studies.report.runs import LOSS, THROUGHPUT, Case, Comparison
from studies.report.statistics import difference, summarize

# The position of the values of panels that have one for each case.
_ONLY = ''


def finals(comparison: Comparison, name: str) -> Panel:
    """A metric of each case at the last step."""
    metric = comparison.metrics[name]
    panel = _side_by_side(comparison, f'At the last step: {metric.label}', lambda case: case.finals(name))
    return panel._replace(y=metric.heading, has_zero=False)


def throughput(comparison: Comparison) -> Panel:
    """The images per second of the training."""
    panel = _side_by_side(comparison, 'Training: images/s', lambda case: case.throughputs)
    return panel._replace(y=THROUGHPUT.heading)


def _side_by_side(comparison: Comparison, title: str, values_of: Callable[[Case], Mapping[object, float]]) -> Panel:
    series, runs = {}, {}
    for case in comparison.cases:
        values = values_of(case)
        series[case.name] = {_ONLY: _spread(values.values())}
        runs[case.name] = {case.by_key[key].name: {_ONLY: value} for key, value in values.items()}
    return Panel(title, '', '', series, runs=_of_several(runs))


def _spread(values: Iterable[float]) -> Optional[Spread]:
    """The mean, with one standard deviation on either side; None without values."""
    n, mean, deviation = summarize(values)
    return Spread(mean, mean - deviation, mean + deviation) if n else None


def _of_several(runs: Mapping[str, Mapping[str, Any]]) -> Dict[str, Mapping[str, Any]]:
    """The runs of the cases that have several."""
    return {name: of_case for name, of_case in runs.items() if len(of_case) > 1}


def differences(comparison: Comparison, name: str) -> Panel:
    """The difference of each later case from the first, with its interval."""
    metric, series = comparison.metrics[name], {}
    for case in comparison.cases:
        first = comparison.cases[0]
        found = difference(case.finals(name), first.finals(name)) if case is not first else None
        series[case.name] = {_ONLY: found and Spread(*found)}
    axis = f'difference of {metric.label}, {metric.difference_unit}'
    return Panel('Difference from the first case, 95 % interval', '', axis, series)


def curves(comparison: Comparison) -> List[Panel]:
    """Evaluation metrics and training loss by step, or by epoch if the cases' batch sizes differ."""
    panels = []
    for name, metric in (*comparison.metrics.items(), ('', LOSS)):
        series, runs = {}, {}
        for case in comparison.cases:
            at = _positions(comparison, case)
            of_runs = {run.name: run.values(name) if name else run.losses for run in case.runs}
            steps = sorted({step for values in of_runs.values() for step in values})
            series[case.name] = {
                at(step): _spread(values[step] for values in of_runs.values() if step in values) for step in steps
            }
            runs[case.name] = {
                run: {at(step): value for step, value in values.items()} for run, values in of_runs.items()
            }
        title = f'Validation: {metric.label}' if name else 'Training: loss'
        x = _unit(comparison)
        panels.append(Panel(title, x, metric.heading, series, has_zero=False, style=BANDS, runs=_of_several(runs)))
    return panels


def schedule(comparison: Comparison) -> Panel:
    """The learning rate by step or epoch."""
    series = {}
    for case in comparison.cases:
        at = _positions(comparison, case)
        series[case.name] = {at(step): Spread(rate, math.nan, math.nan) for step, rate in case.schedule.items()}
    return Panel('Learning rate', _unit(comparison), 'learning rate', series, style=STEPS)


def _unit(comparison: Comparison) -> str:
    return 'epoch' if comparison.by_epoch else 'step'


def _positions(comparison: Comparison, case: Case) -> Callable[[int], float]:
    """The position of a step of a case: its epoch, if epochs are compared."""
    length = (comparison.by_epoch and case.steps_per_epoch) or 1
    return lambda step: step / length


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
    return {name: chart('', panels(comparison)) for name, (_, panels) in PICTURES.items()}
