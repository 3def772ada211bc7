"""Numbers computed from the runs of a comparison, for the report's tables and figures."""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.run.history import shows_top_5
from studies.report import statistics
from studies.report.runs import METRICS, Case, Comparison, Run, TrainingPoint
from studies.report.statistics import Difference, Estimate, Summary

# Maximum number of points in a run's loss curve: more would overlap in the figure, and make the page large.
LOSS_POINTS = 300
# Steps at which a schedule is sampled; between two that differ, a bisection finds the step of the change.
_SCHEDULE_STEPS = 1000


@dataclass(frozen=True)
class Curve:
    """Values of a run by step."""

    run: Run
    steps: Tuple[int, ...]
    values: Tuple[float, ...]


@dataclass(frozen=True)
class CaseCurve:
    """The curves of a case's runs, and their summary at each step that any of them has."""

    curves: Tuple[Curve, ...]
    steps: Tuple[int, ...]
    summaries: Tuple[Summary, ...]


@dataclass(frozen=True)
class CaseFindings:
    """The numbers of a case.

    Attributes:
      case: the case.
      runs: its runs by their seeds if these are distinct, else by their names; by name also before a run has started.
      evaluations: the curve of each reported metric.
      loss: the curve of the training loss; a point is the mean of the summaries in a span of steps.
      schedule: (step, learning rate) at the first step, at each change and at the last step; empty before a run has
        started.
      steps_per_epoch: steps in an epoch; None before a run has started.
      finals: for each metric, the values at the last step of training, by key; only of finished runs.
      middles: for each metric, the interquartile mean of these values; None with too few of them for an interval.
      throughputs: images/s by key: the median over a run's training summaries.
    """

    case: Case
    runs: Mapping[object, Run]
    evaluations: Mapping[str, CaseCurve]
    loss: CaseCurve
    schedule: Tuple[Tuple[int, float], ...]
    steps_per_epoch: Optional[float]
    finals: Mapping[str, Mapping[object, float]]
    middles: Mapping[str, Optional[Estimate]]
    throughputs: Mapping[object, float]


@dataclass(frozen=True)
class Pair:
    """Two cases, compared.

    Attributes:
      later: index of the later case.
      earlier: index of the earlier case.
      differences: for each metric, the difference later - earlier of their means; None if one has no value.
      improvements: for each metric, the probability that a run of the later case is better than one of the earlier;
        None with too few runs for an interval.
    """

    later: int
    earlier: int
    differences: Mapping[str, Optional[Difference]]
    improvements: Mapping[str, Optional[Estimate]]


@dataclass(frozen=True)
class Findings:
    """The numbers of a comparison, by case and by pair of cases."""

    comparison: Comparison
    cases: Tuple[CaseFindings, ...]
    pairs: Tuple[Pair, ...]

    @property
    def runs(self) -> List[Run]:
        """All runs, in the order of the cases."""
        return [run for case in self.comparison.cases for run in case.runs]

    @property
    def by_epoch(self) -> bool:
        """Whether curves are compared by epoch, not by step: the cases' batch sizes differ."""
        return len({each.steps_per_epoch for each in self.cases} - {None}) > 1


def find(comparison: Comparison) -> Findings:
    """Computes the numbers of a comparison; without the top-5 accuracy if all runs have too few classes for it."""
    configs = [run.config for case in comparison.cases for run in case.runs if run.config]
    shown = tuple(name for name in comparison.report if name != 'top_5') or comparison.report
    if configs and not any(shows_top_5(config.num_classes) for config in configs):
        comparison = dataclasses.replace(comparison, report=shown)
    cases = tuple(_case_findings(case, comparison.report) for case in comparison.cases)
    pairs = itertools.combinations(enumerate(cases), 2)
    return Findings(comparison, cases, tuple(_pair(*later, *earlier) for earlier, later in pairs))


def is_finished(run: Run) -> bool:
    """Whether a run has evaluated its last step; a later failure, such as of the export, does not change that."""
    return bool(run.config and run.evaluations and run.evaluations[-1].step >= run.config.train_steps)


def state(run: Run) -> str:
    """The progress of a run, in words."""
    if is_finished(run):
        return 'finished'
    steps = [evaluation.step for evaluation in run.evaluations] + [point.step for point in run.training]
    if not run.config:
        progress = 'not started'
    elif not steps:
        progress = f'started, of {run.config.train_steps:,} steps'
    else:
        progress = f'at step {max(steps):,} of {run.config.train_steps:,}'
    return f'failed, {progress}' if run.failure else progress


def _case_findings(case: Case, report: Sequence[str]) -> CaseFindings:
    # The seed of a run that has not started is not known.
    seeds = [run.seed for run in case.runs if run.config]
    are_keys = None not in seeds and len({*seeds}) == len(seeds)
    runs: Dict[object, Run] = {run.seed if are_keys and run.config else run.name: run for run in case.runs}
    finished = {key: run.evaluations[-1] for key, run in runs.items() if is_finished(run)}
    finals: Dict[str, Dict[object, float]] = {}
    for metric in report:
        finals[metric] = {key: getattr(last, metric) for key, last in finished.items()}
    rates = {key: [point.images_per_second for point in run.training] for key, run in runs.items()}
    started = next((run.config for run in case.runs if run.config), None)
    return CaseFindings(
        case=case,
        runs=runs,
        evaluations={metric: _case_curve([_evaluation_curve(run, metric) for run in case.runs]) for metric in report},
        loss=_case_curve([_loss_curve(run) for run in case.runs]),
        schedule=_schedule(started) if started else (),
        steps_per_epoch=started.num_train_images / started.train_batch_size if started else None,
        finals=finals,
        middles={metric: statistics.interquartile_mean(finals[metric].values()) for metric in report},
        throughputs={key: float(np.median([*filter(None, of_run)])) for key, of_run in rates.items() if any(of_run)},
    )


def _evaluation_curve(run: Run, metric: str) -> Curve:
    steps = tuple(evaluation.step for evaluation in run.evaluations)
    return Curve(run, steps, tuple(getattr(evaluation, metric) for evaluation in run.evaluations))


def _loss_curve(run: Run) -> Curve:
    """The mean loss of each span of steps, at the last step of the span that has a summary."""
    spans: Dict[int, List[TrainingPoint]] = {}
    if run.training:
        steps = max(1, -(-(run.config.train_steps if run.config else run.training[-1].step) // LOSS_POINTS))
        for point in run.training:
            spans.setdefault(point.step // steps, []).append(point)
    means = tuple(sum(point.loss for point in points) / len(points) for points in spans.values())
    return Curve(run, tuple(points[-1].step for points in spans.values()), means)


def _case_curve(curves: Sequence[Curve]) -> CaseCurve:
    at_step: Dict[int, List[float]] = {}
    for curve in curves:
        for step, value in zip(curve.steps, curve.values):
            at_step.setdefault(step, []).append(value)
    steps = tuple(sorted(at_step))
    return CaseCurve(tuple(curves), steps, tuple(statistics.summarize(at_step[step]) for step in steps))


def _schedule(config: Config) -> Tuple[Tuple[int, float], ...]:
    """(Step, learning rate) at the first step, at each change, and at the last step.

    Between two sampled steps, the rate is assumed to change at most once.
    """
    last = config.train_steps - 1
    sampled = sorted({round(last * index / _SCHEDULE_STEPS) for index in range(_SCHEDULE_STEPS + 1)})
    points = [(0, learning_rate(0, config))]
    for before, after in zip(sampled, sampled[1:]):
        rate = points[-1][1]
        if learning_rate(after, config) == rate:
            continue
        # The rate changes after `before`, and not after `after`.
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if learning_rate(middle, config) == rate else (before, middle)
        points.append((after, learning_rate(after, config)))
    return (*points, (last, points[-1][1])) if last > points[-1][0] else tuple(points)


def _pair(later: int, ours: CaseFindings, earlier: int, theirs: CaseFindings) -> Pair:
    differences, improvements = {}, {}
    for name, values in ours.finals.items():
        differences[name] = statistics.difference(values, theirs.finals[name])
        sign = -1 if METRICS[name].is_better_lower else 1
        scores = [[sign * value for value in of_case.values()] for of_case in (values, theirs.finals[name])]
        improvements[name] = statistics.improvement(scores[0], scores[1])
    return Pair(later, earlier, differences, improvements)
