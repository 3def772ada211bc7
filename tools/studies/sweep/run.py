"""Plans the trials of a study, runs them, and reports on them, in a page and in the last lines on the screen."""

import contextlib
import fcntl
import fnmatch
import functools
import os
import re
import signal
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from absl import app

from compat import tf
from compat.errors import DONE, RETRY, TerminatedError
from compat.log import logger
from compat.messages import shown
from console.json_content import from_json
from console.screen import Screen, duration
from data import remote
from data.files import text_of
from inception_v3.data_set import check_data
from inception_v3.fitting import fit_to_data_set, makes_digits
from inception_v3.model_dir import check_writable
from inception_v3.run.evaluations import Evaluation
from tools import extras
from tools.datasets import digits
from tools.studies.files import write_json
from tools.studies.report import page, tables
from tools.studies.report.runs import Comparison, Run, case_of, cautions, read_run
from tools.studies.report.statistics import FEWEST_RUNS, POWER
from tools.studies.study import Study, StudyError
from tools.studies.sweep import gpus, trials
from tools.studies.sweep.trials import Outcome, Place, RunningTrial, State, Trial

# Seconds between checks of the running trials, and between reads of their files.
_POLL_INTERVAL, _READ_INTERVAL = 0.2, 1.0
# The time of day at the start of a line.
_CLOCK = re.compile(r'\d\d:\d\d:\d\d ')
# The most names of trials that a message lists.
_MOST_NAMES = 12


class Plan(NamedTuple):
    """A study or a small version of it, the sweep's folder, all trials, and those that this command runs or lists."""

    study: Study
    out: str
    all_trials: List[Trial]
    selected: List[Trial]


def plan(
    study: Study,
    out: Optional[str] = None,
    pattern: Optional[str] = None,
    limit: Optional[int] = None,
    program: Optional[Tuple[str, ...]] = None,
) -> Plan:
    """Plans the trials whose names match a pattern; with a limit, the first that are not done.

    Trials run `program`, by default the program of a run.

    Raises StudyError for flags that the program refuses, and for a pattern without a match.
    """
    out = os.path.join('runs', 'studies', study.name) if out is None else out
    all_trials = trials.trials_of(study, out, program)
    selected = [trial for trial in all_trials if pattern is None or fnmatch.fnmatchcase(trial.name, pattern)]
    if not selected:
        names = ', '.join(trial.name for trial in all_trials[:_MOST_NAMES])
        names += ', …' if len(all_trials) > _MOST_NAMES else ''
        raise StudyError(f'--filter={shown(pattern)}: matches no trial. The trials are {names}.')
    if limit is not None:
        selected = [trial for trial in selected if trials.state_of(trial) is not State.DONE][:limit]
    return Plan(study, out, all_trials, selected)


def run(
    planned: Plan,
    screen: Screen,
    workers: int = 1,
    ray: Optional[str] = None,
    gpus_per_trial: Optional[int] = None,
) -> int:
    """Runs the selected trials that are not done, and writes the report after each; returns the exit code.

    `workers` trials run at a time, on this machine or on the smallest node of the cluster at the address `ray`.
    `gpus.per_trial` determines the number of GPUs of each. Trials are not pinned to cores: this would change their
    number of threads, and with it the last bits of their results, which may depend on the command line only.

    A signal is raised again as KeyboardInterrupt or TerminatedError after the running trials have ended.
    """
    if remote.is_remote(planned.out):
        raise StudyError(f'--out={planned.out}: must be a local folder, or one on a file system that machines share.')
    check_writable('out', planned.out)
    with contextlib.ExitStack() as opened:
        folder = os.open(planned.out, os.O_RDONLY)
        opened.callback(os.close, folder)
        lock(folder, planned.out)
        check(planned)
        commands = {trial.name: trials.command(trial) for trial in planned.all_trials}
        content = {'name': planned.study.name, 'question': planned.study.question, 'commands': commands}
        write_json(os.path.join(planned.out, trials.STUDY_FILE), content)
        all_progress = [Progress(trial, trials.state_of(trial)) for trial in planned.all_trials]
        names = {trial.name for trial in planned.selected}
        selected = [progress for progress in all_progress if progress.trial.name in names]
        waiting = [progress.trial for progress in selected if progress.state is not State.DONE]
        if ray is not None:
            extras.require('ray', 'ray')
            from tools.studies.sweep.ray_cluster import cluster

            gpus_of = functools.partial(gpus.per_trial, gpus_per_trial, waiting)
            place = opened.enter_context(cluster(ray, workers, planned.out, gpus_of))
        else:
            present = gpus.here()
            each = gpus.per_trial(gpus_per_trial, waiting, are_there=bool(present))
            place = Place(lambda: workers, gpus.GpusOfTrials(present, each, workers).start)
        check_tpus(waiting, place.slots())
        # Opened after the connection to Ray, which sets a SIGTERM handler of its own.
        signals = opened.enter_context(stop_signals())

        def write_report() -> None:
            try:
                page.write(planned.out, comparison_of(planned, all_progress))
            # An error in the report must not end the trials.
            except Exception as error:
                logger.info(f'the report cannot be written: {type(error).__name__}: {error}')

        perform(selected, place, screen, signals, write_report)
        write_report()
    print(summary(planned, all_progress, comparison_of(planned, all_progress)))
    if all(progress.state is State.DONE for progress in selected):
        return DONE
    if signal.SIGINT in signals[:1]:
        raise KeyboardInterrupt
    if signals:
        raise TerminatedError(f'ended by {signals[0].name}; the same command resumes the sweep')
    return RETRY


def lock(folder: int, out: str) -> None:
    """Locks the sweep's folder, given by a file descriptor, against other sweeps, until the descriptor is closed."""
    # filelock cannot lock a folder, only a file of its own.
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StudyError(f'--out={out}: another sweep is running there. Wait until it ends, or name another folder.')
    except OSError:
        # Network file systems may not support locks. The program's own lock in each model_dir still holds.
        pass


def check(planned: Plan) -> None:
    """Checks that the sweep's folder belongs to this study with the same flags, and that the trials have their data.

    Makes the digits once; otherwise several trials would make them at the same time.

    Raises:
      StudyError: the folder belongs to another study, or to this study with other flags; or a data set is missing or
        does not fit its trial.
      UnreachableError: a data set's storage cannot be reached.
    """
    study, out = planned.study, planned.out
    content = text_of(os.path.join(out, trials.STUDY_FILE))
    try:
        name = from_json(content, lambda values: values['name']) if content else study.name
    except ValueError:
        name = study.name
    if name != study.name:
        raise StudyError(f'--out={out}: holds the study {shown(name)}; name another folder for {study.name}.')
    trials.check_unchanged(planned.all_trials)
    seen = set()
    for trial in planned.selected:
        config = trial.config
        key = (config.use_data, config.source, config.num_classes, config.class_weights)
        if key in seen:
            continue
        seen.add(key)
        try:
            if makes_digits(trial.command_line):
                digits.make(config.data_dir)
            config = fit_to_data_set(trial.command_line)
            check_data(config)
        except remote.UnreachableError:
            raise
        except app.UsageError as error:
            raise StudyError(f'case {trial.case}: {error}')


def check_tpus(waiting: Sequence[Trial], slots: int) -> None:
    """Refuses trials that would use one TPU at the same time, if `slots` trials run at a time."""
    tpus = [t.config.tpu or t.config.master for t in waiting if t.config.use_tpu and not t.config.is_emulated]
    shared = next((tpu for tpu in tpus if tpus.count(tpu) > 1), None)
    if shared and slots > 1:
        raise StudyError(
            f'--tpu={shared}: several trials use this TPU, and {slots} would run at a time. Leave out --workers, or '
            'name a TPU for each trial.'
        )


class Progress:
    """The progress of a trial, read from its folder."""

    def __init__(self, trial: Trial, state: State):
        self.trial, self.state = trial, state
        # The newest line of its log since it was started, and the reason for a failure or a stop.
        self.line = self.reason = ''
        self.evaluation: Optional[Evaluation] = trials.last_evaluation(trial)
        # Seconds since this sweep started the trial; after its end, its duration.
        self.seconds = self._started_at = 0.0
        self._log_read = 0

    def start(self) -> None:
        """Records that the trial starts now."""
        self.state, self.line, self.reason = State.RUNNING, 'starting', ''
        self._started_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._log_read = os.path.getsize(self.trial.log)

    def end(self, outcome: Outcome) -> None:
        """Records the outcome of the trial, and logs it."""
        self.read()
        self.state, self.reason, self.line = outcome.state, outcome.reason, ''
        result = f', top-1 {self.evaluation.top_1:.2%}' if self.evaluation else ''
        result = result if self.state is State.DONE else f': {self.reason}'
        logger.info(f'{self.trial.name}: {self.state.value} after {duration(self.seconds)}{result}')

    def read(self) -> None:
        """Reads what the trial has written since the last call."""
        self.seconds = time.monotonic() - self._started_at
        self.evaluation = trials.last_evaluation(self.trial)
        with contextlib.suppress(OSError), open(self.trial.log, 'rb') as file:
            file.seek(self._log_read)
            whole, newline, _ = file.read().rpartition(b'\n')
            self._log_read += len(whole) + len(newline)
            if whole:
                newest = whole.rpartition(b'\n')[2].decode(errors='replace')
                self.line = shown(_CLOCK.sub('', newest))


def counts(all_progress: Sequence[Progress]) -> str:
    """The number of trials in each state, in words."""
    states = [progress.state for progress in all_progress]
    others = [f'{states.count(state)} {state.value}' for state in State if state in states and state is not State.DONE]
    return ', '.join([f'{states.count(State.DONE)} of {len(states)} trials done', *others])


@contextlib.contextmanager
def stop_signals() -> Iterator[List[signal.Signals]]:
    """Records Ctrl-C, SIGTERM and SIGHUP in a list, instead of their usual effects."""
    received: List[signal.Signals] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        # Under `nohup`, SIGHUP is ignored, and must stay so.
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
    screen: Screen,
    signals: Sequence[signal.Signals],
    write_report: Callable[[], None],
) -> None:
    """Runs the trials that are not done, and keeps their progress up to date.

    After the first signal no trial is started, and running trials are asked to end; the second kills them. The report
    is written whenever trials have ended and the next ones have been started.
    """
    waiting = [progress for progress in all_progress if progress.state is not State.DONE]
    running: List[Tuple[Progress, RunningTrial]] = []
    handled, has_news, read_at = 0, False, 0.0
    while running or (waiting and not signals):
        while waiting and not signals and len(running) < place.slots():
            progress = waiting.pop(0)
            progress.start()
            try:
                running.append((progress, place.start(progress.trial)))
            except OSError as error:
                progress.end(trials.not_run(f'cannot be started: {error}'))
        if has_news:
            write_report()
        if len(signals) > handled:
            handled = len(signals)
            if handled == 1 and running:
                logger.info(f'{signals[0].name}: running trials save a checkpoint and end; a second one kills them')
            for _, trial in running:
                trial.stop() if handled == 1 else trial.kill()
        still_running = [pair for pair in running if not _has_ended(*pair)]
        has_news = len(still_running) < len(running)
        running = still_running
        if time.monotonic() - read_at >= _READ_INTERVAL:
            read_at = time.monotonic()
            for progress, _ in running:
                progress.read()
            lines = [f'{progress.trial.name}: {progress.line}' for progress, _ in running]
            screen.update('; '.join([counts(all_progress), *lines]))
        time.sleep(_POLL_INTERVAL)
    screen.clear()


def _has_ended(progress: Progress, running: RunningTrial) -> bool:
    try:
        outcome = running.poll()
    except (OSError, tf.errors.OpError) as error:
        running.kill()
        outcome = trials.not_run(f'its outcome cannot be written: {error}')
    if outcome:
        progress.end(outcome)
    return outcome is not None


def comparison_of(planned: Plan, all_progress: Sequence[Progress]) -> Comparison:
    """The comparison of all cases: the results of their trials so far, and the commands of trials that have not run."""
    study = planned.study
    runs: Dict[str, List[Run]] = {}
    for progress in all_progress:
        trial, failure = progress.trial, progress.reason if progress.state is State.FAILED else None
        run = read_run(trial.model_dir, trial.name, failure, trials.command(trial))
        runs.setdefault(trial.case, []).append(run)
    cases = [
        case_of(case.name, {flag: str(value) for flag, value in case.settings.items()}, runs[case.name])
        for case in study.cases()
    ]
    notes = (f'{trials.cost_of(study, planned.all_trials)}.', *cautions(cases))
    return Comparison(study.name, study.question, tuple(cases), notes, tuple(study.report))


def seeds_needed(planned: Plan, sought: float) -> str:
    """The number of seeds to find a difference of the first metric, from the spread of finished trials, as text."""
    all_progress = [Progress(trial, trials.state_of(trial)) for trial in planned.all_trials]
    table = tables.seeds(comparison_of(planned, all_progress), sought)
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
    lines += [f'note: {note}' for note in cautions(comparison.cases)]
    for progress in all_progress:
        if progress.state is State.FAILED:
            lines.append(f'failed: {progress.trial.name}: {progress.reason}; log: {progress.trial.log}')
    report = os.path.join(planned.out, page.PAGE_FILE)
    return '\n'.join([*lines, f'report: {report}'] if os.path.exists(report) else lines)
