"""Runs the trials of a plan, and reports them: in the report, and in the last lines on the screen."""

import contextlib
import os
import sys
from typing import List, Optional, Sequence

from console.errors import DONE, RETRY
from data import remote
from inception_v3.run.files import check_writable
from studies import extras
from studies.report import page, runs
from studies.report.statistics import summarize
from studies.study import StudyError
from studies.sweep import plan, reuse, trials
from studies.sweep.live import Display, Progress, counts
from studies.sweep.plan import Plan
from studies.sweep.scheduler import StopSignals, perform
from studies.sweep.trials import State
from studies.sweep.workers import Place, ThisMachine

PROGRAM = ('python', '-m', 'inception_v3.main')


def run(
    planned: Plan,
    workers: int = 1,
    program: Sequence[str] = PROGRAM,
    ray: Optional[str] = None,
    sweeps: Sequence[str] = (),
) -> int:
    """Runs the selected trials that are not done, and writes the report after each; returns the exit code.

    Args:
      planned: the plan.
      workers: trials at a time, on this machine or on the smallest node of a cluster.
      program: the program whose command lines the trials are.
      ray: the address of a Ray cluster; None: this machine.
      sweeps: folders of other sweeps, whose finished trials with the same flags and seed are copied.

    Raises:
      StudyError: the plan cannot be carried out.
      KeyboardInterrupt, TerminatedError: a signal ended the sweep, after its running trials.
    """
    if remote.is_remote(planned.out):
        raise StudyError(f'--out={planned.out}: must be a local folder, or one on a file system that machines share.')
    check_writable('out', planned.out)
    folder = os.open(planned.out, os.O_RDONLY)
    try:
        plan.lock(folder, planned.out)
        plan.check(planned)
        plan.write_study(planned, program)
        for trial, source in reuse.take(planned.selected, sweeps):
            print(f'{trial.name}: taken from {source}', file=sys.stderr)
        return _run(planned, workers, program, ray)
    finally:
        os.close(folder)


def _run(planned: Plan, workers: int, program: Sequence[str], ray: Optional[str]) -> int:
    all_progress = [Progress(trial, trials.state_of(trial)) for trial in planned.all_trials]
    names = {trial.name for trial in planned.selected}
    selected = [progress for progress in all_progress if progress.trial.name in names]
    with contextlib.ExitStack() as opened:
        place = opened.enter_context(_place(planned, workers, program, ray))
        plan.check_tpus([p.trial for p in selected if p.state is not State.DONE], place.slots)
        # Opened after the connection to Ray, which sets a SIGTERM handler of its own.
        signals = opened.enter_context(StopSignals())
        display = opened.enter_context(Display(sys.stderr, all_progress))

        def write_report() -> None:
            try:
                page.write(planned.out, comparison_of(planned, all_progress, program))
            # An error in the report must not end the trials.
            except Exception as error:
                display.say(f'the report cannot be written: {type(error).__name__}: {error}')

        perform(selected, place, display, signals, write_report)
        write_report()
    print(summary(planned, all_progress))
    if all(progress.state is State.DONE for progress in selected):
        return DONE
    signals.check()
    return RETRY


def _place(planned: Plan, workers: int, program: Sequence[str], ray: Optional[str]) -> Place:
    if ray is None:
        return ThisMachine(workers, program)
    extras.require('ray')
    from studies.sweep.ray_cluster import RayCluster

    return RayCluster(ray, workers, program, planned.out)


def comparison_of(planned: Plan, all_progress: Sequence[Progress], program: Sequence[str]) -> runs.Comparison:
    """The comparison of all cases: the results of their trials so far, and the commands of trials that have not run."""
    cases = []
    for case in planned.study.cases():
        of_case: List[runs.Run] = []
        for progress in all_progress:
            trial, failure = progress.trial, progress.reason if progress.state is State.FAILED else None
            if trial.case == case.name:
                of_case.append(runs.read_run(trial.model_dir, trial.name, failure, trials.command(program, trial)))
        cases.append(runs.Case(case.name, {flag: str(value) for flag, value in case.settings.items()}, tuple(of_case)))
    study = planned.study
    notes = (f'{trials.cost_of(study, planned.all_trials)}.',)
    return runs.Comparison(study.name, study.question, tuple(cases), notes, tuple(study.report))


def summary(planned: Plan, all_progress: Sequence[Progress]) -> str:
    """The last lines that a sweep prints: a line for each case, the failures, and the path of the report."""
    rows = []
    for case in planned.study.cases():
        of_case = [p for p in all_progress if p.trial.case == case.name and p.state is State.DONE]
        last = [progress.evaluation for progress in of_case if progress.evaluation]
        row = [case.name, f'{len(last)} of {len(planned.study.all_seeds)} seeds']
        for name in planned.study.report:
            metric = runs.METRICS[name]
            values = summarize(metric.scale * getattr(evaluation, name) for evaluation in last)
            row.append(f'{metric.label} {metric.mean(values)} {metric.unit if values.n else ""}'.rstrip())
        rows.append(row)
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = ['  '.join(f'{cell:<{width}}' for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines += ['', counts(all_progress)]
    for progress in all_progress:
        if progress.state is State.FAILED:
            lines.append(f'failed: {progress.trial.name}: {progress.reason}; log: {progress.trial.log}')
    report = os.path.join(planned.out, page.PAGE_FILE)
    return '\n'.join([*lines, f'report: {report}'] if os.path.exists(report) else lines)
