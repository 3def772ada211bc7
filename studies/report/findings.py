"""What the runs of a comparison show, as numbers: a report draws them, on a page and in pictures."""

import itertools
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from studies.report import statistics
from studies.report.runs import Case, Comparison, Run, TrainingPoint
from studies.report.statistics import Difference, Summary

# Points of a run's loss curve, at most: more is ink upon ink, and a page of many megabytes.
LOSS_POINTS = 300
# Steps of a schedule that are looked at, before the steps between two that differ are searched.
_SCHEDULE_STEPS = 1000


@dataclass(frozen=True)
class Curve:
    """Values of a run, by step."""

    run: Run
    steps: Tuple[int, ...]
    values: Tuple[float, ...]


@dataclass(frozen=True)
class CaseCurve:
    """The curves of a case's runs, and at each step that one of them has, a summary of those that have it."""

    curves: Tuple[Curve, ...]
    steps: Tuple[int, ...]
    summaries: Tuple[Summary, ...]


@dataclass(frozen=True)
class CaseFindings:
    """What the runs of a case show.

    Attributes:
      case: the case.
      keys: what tells its runs apart, in their order: their seeds, as in other cases, if each has its own; else their
        names.
      evaluations: the curve of each metric that is reported.
      loss: the curve of the training loss; a point is the mean of the summaries of its span of steps.
      schedule: step and learning rate at the first step, wherever the rate changes, and at the last step; empty before
        a run has begun.
      steps_per_epoch: None before a run has begun.
      finals: of each metric, the value at the last step of training, by the key of the run; runs that have not got
        there are not in it.
      throughputs: images/s by the key of the run: the median over its training summaries.
    """

    case: Case
    keys: Tuple[object, ...]
    evaluations: Mapping[str, CaseCurve]
    loss: CaseCurve
    schedule: Tuple[Tuple[int, float], ...]
    steps_per_epoch: Optional[float]
    finals: Mapping[str, Mapping[object, float]]
    throughputs: Mapping[object, float]


@dataclass(frozen=True)
class Pair:
    """Two cases, and of each metric the mean of the later one less that of the earlier; None if one has no value."""

    later: Case
    earlier: Case
    differences: Mapping[str, Optional[Difference]]


@dataclass(frozen=True)
class Findings:
    """What the runs of a comparison show: by case, and by pair of cases."""

    comparison: Comparison
    cases: Tuple[CaseFindings, ...]
    pairs: Tuple[Pair, ...]

    @property
    def runs(self) -> List[Run]:
        """All runs, in the order of the cases."""
        return [run for case in self.comparison.cases for run in case.runs]


def find(comparison: Comparison) -> Findings:
    """Computes what is to be shown of a comparison."""
    cases = tuple(_case_findings(case, comparison.report) for case in comparison.cases)
    pairs = tuple(_pair(later, earlier, comparison.report) for earlier, later in itertools.combinations(cases, 2))
    return Findings(comparison, cases, pairs)


def is_finished(run: Run) -> bool:
    """Whether a run has evaluated what it is to end with: whatever failed after that does not take it away."""
    return bool(run.config and run.evaluations and run.evaluations[-1].step >= run.config.train_steps)


def state(run: Run) -> str:
    """How far a run is, in a few words."""
    if is_finished(run):
        return 'finished'
    steps = [run.evaluations[-1].step] if run.evaluations else []
    steps += [run.training[-1].step] if run.training else []
    if not run.config:
        progress = 'not begun'
    elif not steps:
        progress = f'begun, of {run.config.train_steps:,} steps'
    else:
        progress = f'at step {max(steps):,} of {run.config.train_steps:,}'
    return f'failed, {progress}' if run.failure else progress


def has_several_batch_sizes(found: Findings) -> bool:
    """Whether a step is another number of images in one case than in another: epochs compare them then."""
    return len({each.steps_per_epoch for each in found.cases} - {None}) > 1


def environment(runs: Sequence[Run]) -> Dict[str, Dict[str, List[Run]]]:
    """Of each thing that runs tell of where they were made, the runs by what they tell."""
    found: Dict[str, Dict[str, List[Run]]] = {}
    for run in runs:
        for name, value in run.environment.items():
            found.setdefault(name, {}).setdefault(value, []).append(run)
    return found


def _case_findings(case: Case, report: Sequence[str]) -> CaseFindings:
    keys = _keys(case.runs)
    begun = next((run.config for run in case.runs if run.config), None)
    return CaseFindings(
        case=case,
        keys=keys,
        evaluations={metric: _case_curve(case, _evaluation_curve(metric)) for metric in report},
        loss=_case_curve(case, _loss_curve),
        schedule=_schedule(begun) if begun else (),
        steps_per_epoch=begun.num_train_images / begun.train_batch_size if begun else None,
        finals={
            metric: {key: getattr(run.evaluations[-1], metric) for key, run in zip(keys, case.runs) if is_finished(run)}
            for metric in report
        },
        throughputs={
            key: float(np.median(rates)) for key, run in zip(keys, case.runs) for rates in [_rates(run)] if rates
        },
    )


def _keys(runs: Sequence[Run]) -> Tuple[object, ...]:
    seeds = [run.seed for run in runs]
    if len({*seeds} - {None}) == len(runs):
        return tuple(seeds)
    return tuple(run.name for run in runs)


def _rates(run: Run) -> List[float]:
    return [point.images_per_second for point in run.training if point.images_per_second]


def _evaluation_curve(metric: str) -> Callable[[Run], Curve]:
    def curve(run: Run) -> Curve:
        steps = tuple(evaluation.step for evaluation in run.evaluations)
        return Curve(run, steps, tuple(getattr(evaluation, metric) for evaluation in run.evaluations))

    return curve


def _loss_curve(run: Run) -> Curve:
    """The mean loss of each span of steps, at the last step of the span that was told of."""
    spans: Dict[int, List[TrainingPoint]] = {}
    if run.training:
        steps = max(1, -(-(run.config.train_steps if run.config else run.training[-1].step) // LOSS_POINTS))
        for point in run.training:
            spans.setdefault(point.step // steps, []).append(point)
    means = tuple(sum(point.loss for point in points) / len(points) for points in spans.values())
    return Curve(run, tuple(points[-1].step for points in spans.values()), means)


def _case_curve(case: Case, curve_of: Callable[[Run], Curve]) -> CaseCurve:
    curves = tuple(curve_of(run) for run in case.runs)
    at_step: Dict[int, List[float]] = {}
    for curve in curves:
        for step, value in zip(curve.steps, curve.values):
            at_step.setdefault(step, []).append(value)
    steps = tuple(sorted(at_step))
    return CaseCurve(curves, steps, tuple(statistics.summarize(at_step[step]) for step in steps))


def _schedule(config: Config) -> Tuple[Tuple[int, float], ...]:
    """Step and learning rate at the first step, wherever the rate changes, and at the last step.

    Between steps that are looked at, a rate that changes is taken to change once.
    """
    last = config.train_steps - 1
    looked_at = sorted({round(last * index / _SCHEDULE_STEPS) for index in range(_SCHEDULE_STEPS + 1)})
    points = [(0, learning_rate(0, config))]
    for before, after in zip(looked_at, looked_at[1:]):
        rate = learning_rate(after, config)
        if rate == points[-1][1]:
            continue
        # The rate changes after `before`, and not after `after`.
        while after - before > 1:
            middle = (before + after) // 2
            if learning_rate(middle, config) == points[-1][1]:
                before = middle
            else:
                after = middle
        points.append((after, learning_rate(after, config)))
    return (*points, (last, points[-1][1])) if last > points[-1][0] else tuple(points)


def _pair(later: CaseFindings, earlier: CaseFindings, report: Sequence[str]) -> Pair:
    differences = {metric: statistics.difference(later.finals[metric], earlier.finals[metric]) for metric in report}
    return Pair(later.case, earlier.case, differences)
