"""Runs the trials of a plan, and reports them: in the report, and in the last lines on the screen."""

import contextlib
import os
import signal
import sys
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from console import extras
from console.errors import DONE, RETRY, TerminatedError
from console.screen import duration
from console.tensorflow_versions import tf
from data import remote
from inception_v3.run.files import check_writable
from studies.report import page, tables
from studies.report.runs import Case, Comparison, Run, read_run
from studies.report.statistics import FEWEST_RUNS, POWER
from studies.study import StudyError
from studies.sweep import plan, trials
from studies.sweep.live import Display, Progress, counts
from studies.sweep.plan import Plan
from studies.sweep.trials import State
from studies.sweep.workers import Place, RunningTrial, this_machine

PROGRAM = ('python', '-m', 'inception_v3.main')
# Seconds between checks of the running trials.
_POLL_INTERVAL = 0.2


def run(
    planned: Plan,
    workers: int = 1,
    program: Sequence[str] = PROGRAM,
    ray: Optional[str] = None,
) -> int:
    """Runs the selected trials that are not done, and writes the report after each; returns the exit code.

    `workers` trials run at a time, on this machine or on the smallest node of the cluster at the address `ray`.
    A signal is raised again as KeyboardInterrupt or TerminatedError after the running trials have ended.
    """
    if remote.is_remote(planned.out):
        raise StudyError(f'--out={planned.out}: must be a local folder, or one on a file system that machines share.')
    check_writable('out', planned.out)
    with contextlib.ExitStack() as opened:
        folder = os.open(planned.out, os.O_RDONLY)
        opened.callback(os.close, folder)
        plan.lock(folder, planned.out)
        plan.check(planned)
        plan.write_study(planned, program)
        all_progress = [Progress(trial, trials.state_of(trial)) for trial in planned.all_trials]
        names = {trial.name for trial in planned.selected}
        selected = [progress for progress in all_progress if progress.trial.name in names]
        place = this_machine(workers, program)
        if ray is not None:
            extras.require('ray', 'ray')
            from studies.sweep.ray_cluster import cluster

            place = opened.enter_context(cluster(ray, workers, program, planned.out))
        plan.check_tpus([p.trial for p in selected if p.state is not State.DONE], place.slots())
        # Opened after the connection to Ray, which sets a SIGTERM handler of its own.
        signals = opened.enter_context(stop_signals())
        with Display(sys.stderr, all_progress) as display:

            def write_report() -> None:
                try:
                    page.write(planned.out, comparison_of(planned, all_progress, program))
                # An error in the report must not end the trials.
                except Exception as error:
                    display.say(f'the report cannot be written: {type(error).__name__}: {error}')

            perform(selected, place, display, signals, write_report)
            write_report()
    print(summary(planned, all_progress, comparison_of(planned, all_progress, program)))
    if all(progress.state is State.DONE for progress in selected):
        return DONE
    if signal.SIGINT in signals[:1]:
        raise KeyboardInterrupt
    if signals:
        raise TerminatedError(f'ended by {signals[0].name}; the same command resumes the sweep')
    return RETRY


@contextlib.contextmanager
def stop_signals() -> Iterator[List[signal.Signals]]:
    """Records Ctrl-C, SIGTERM and SIGHUP in a list, in place of their effects."""
    received: List[signal.Signals] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        # `nohup` ignores SIGHUP, and it must stay ignored.
        if handler != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: received.append(signal.Signals(number)))
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def perform(
    all_progress: Sequence[Progress],
    place: Place,
    display: Display,
    signals: Sequence[signal.Signals],
    write_report: Callable[[], None],
) -> None:
    """Runs the trials that are not done, and keeps their progress up to date.

    After the first signal no trial is started, and running trials are asked to end; the second kills them. The report
    is written each time after trials have ended and the next ones have been started.
    """
    waiting = [progress for progress in all_progress if progress.state is not State.DONE]
    running: List[Tuple[Progress, RunningTrial]] = []
    handled, has_news = 0, False
    while running or (waiting and not signals):
        while waiting and not signals and len(running) < place.slots():
            progress = waiting.pop(0)
            progress.start()
            try:
                running.append((progress, place.start(progress.trial)))
            except OSError as error:
                _end(progress, trials.not_run(f'cannot be started: {error}'), display)
        if has_news:
            write_report()
        if len(signals) > handled:
            handled = len(signals)
            if handled == 1 and running:
                display.say(f'{signals[0].name}: running trials save a checkpoint and end; a second one kills them')
            for _, trial in running:
                trial.stop() if handled == 1 else trial.kill()
        still_running = [pair for pair in running if not _has_ended(*pair, display)]
        has_news = len(still_running) < len(running)
        running = still_running
        display.update()
        time.sleep(_POLL_INTERVAL)


def _has_ended(progress: Progress, running: RunningTrial, display: Display) -> bool:
    try:
        outcome = running.poll()
    except (OSError, tf.errors.OpError) as error:
        running.kill()
        outcome = trials.not_run(f'its outcome cannot be written: {error}')
    if outcome:
        _end(progress, outcome, display)
    return outcome is not None


def _end(progress: Progress, outcome: trials.Outcome, display: Display) -> None:
    progress.end(outcome)
    result = f', top-1 {progress.evaluation.top_1:.2%}' if progress.evaluation else ''
    if progress.state is not State.DONE:
        result = f': {progress.reason}'
    display.say(f'{progress.trial.name}: {progress.state.value} after {duration(progress.seconds)}{result}')


def comparison_of(planned: Plan, all_progress: Sequence[Progress], program: Sequence[str]) -> Comparison:
    """The comparison of all cases: the results of their trials so far, and the commands of trials that have not run."""
    study = planned.study
    runs: Dict[str, List[Run]] = {}
    for progress in all_progress:
        trial, failure = progress.trial, progress.reason if progress.state is State.FAILED else None
        run = read_run(trial.model_dir, trial.name, failure, trials.command(program, trial))
        runs.setdefault(trial.case, []).append(run)
    cases = [
        Case(case.name, {flag: str(value) for flag, value in case.settings.items()}, tuple(runs[case.name]))
        for case in study.cases()
    ]
    notes = (f'{trials.cost_of(study, planned.all_trials)}.',)
    return Comparison(study.name, study.question, tuple(cases), notes, tuple(study.report))


def seeds_needed(planned: Plan, sought: float, program: Sequence[str] = PROGRAM) -> str:
    """The number of seeds that a difference of the first metric needs, as text, from the spread of finished trials."""
    all_progress = [Progress(trial, trials.state_of(trial)) for trial in planned.all_trials]
    table = tables.seeds(comparison_of(planned, all_progress, program), sought)
    if not table.rows:
        needed = f'two cases with {FEWEST_RUNS} finished seeds in {planned.out}'
        raise StudyError(f"--detect={sought:g}: needs {needed}. Run them first: --filter='*seed-[1-{FEWEST_RUNS}]'.")
    assumptions = (
        f'Seeds with which {POWER:.0%} of such studies tell a true difference of {sought:g} from 0, by a test of pairs '
        'at 5 %, two-sided. Assumes that both cases have the same seeds, and that differences by seed are normal with '
        'the deviation seen so far; the interval is that of this deviation.'
    )
    return '\n'.join([table.plain(), '', assumptions])


def summary(planned: Plan, all_progress: Sequence[Progress], comparison: Comparison) -> str:
    """The last lines that a sweep prints: the results by case, the failures, and the path of the report."""
    lines = [tables.finals(comparison).plain(), '', counts(all_progress)]
    for progress in all_progress:
        if progress.state is State.FAILED:
            lines.append(f'failed: {progress.trial.name}: {progress.reason}; log: {progress.trial.log}')
    report = os.path.join(planned.out, page.PAGE_FILE)
    return '\n'.join([*lines, f'report: {report}'] if os.path.exists(report) else lines)
