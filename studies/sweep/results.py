"""The results of a sweep: the comparison for the report, and the summary on the screen."""

import os
import statistics
from typing import Sequence

from studies.report import files as report_files
from studies.report import runs
from studies.sweep import trials
from studies.sweep.live import Progress, counts
from studies.sweep.plan import Plan
from studies.sweep.trials import State


def comparison_of(plan: Plan, all_progress: Sequence[Progress], program: Sequence[str]) -> runs.Comparison:
    """The comparison of all cases: the results of their trials so far, and the commands of trials that have not run."""
    failures = {p.trial.name: p.reason for p in all_progress if p.state is State.FAILED}
    cases = []
    for case in plan.study.cases():
        of_case = [
            runs.read_run(trial.model_dir, trial.name, failures.get(trial.name), trials.command(program, trial))
            for trial in plan.all_trials
            if trial.case == case.name
        ]
        cases.append(runs.Case(case.name, {flag: str(value) for flag, value in case.settings.items()}, tuple(of_case)))
    notes = (f'{trials.cost_of(plan.study, plan.all_trials)}.',)
    return runs.Comparison(plan.study.name, plan.study.question, tuple(cases), notes, tuple(plan.study.report))


def summary(plan: Plan, all_progress: Sequence[Progress]) -> str:
    """The last lines that a sweep prints: a line for each case, the failures, and the path of the report."""
    rows = []
    for case in plan.study.cases():
        last = [
            progress.evaluation
            for progress in all_progress
            if progress.trial.case == case.name and progress.state is State.DONE and progress.evaluation
        ]
        values = [
            _mean_and_spread(name, [getattr(evaluation, name) for evaluation in last]) for name in plan.study.report
        ]
        rows.append([case.name, f'{len(last)} of {len(plan.study.all_seeds)} seeds', *values])
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = ['  '.join(f'{cell:<{width}}' for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines += ['', counts(all_progress)]
    for progress in all_progress:
        if progress.state is State.FAILED:
            lines.append(f'failed: {progress.trial.name}: {progress.reason}; log: {progress.trial.log}')
    page = os.path.join(plan.out, report_files.PAGE_FILE)
    return '\n'.join([*lines, f'report: {page}'] if os.path.exists(page) else lines)


def _mean_and_spread(name: str, values: Sequence[float]) -> str:
    metric = runs.METRICS[name]
    if not values:
        return f'{metric.label} –'
    text = f'{metric.label} {metric.text(statistics.mean(values))}'
    if len(values) > 1:
        text += f' ± {metric.text(statistics.stdev(values))}'
    return f'{text} {metric.unit}'
