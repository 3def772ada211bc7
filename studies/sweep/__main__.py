"""Runs a study: all its trials, so many at a time, and a report of them that grows with each.

A study file (.py or .yaml; studies/study.py tells how to write one) names what the flags start from, what varies, and
how often each case is repeated. Each trial is the program's own command line in a folder of its own, from which it can
be run alone: OUT/trials/CASE/seed-N/command.sh. The same command goes on: what is done stays, what failed is run again,
and what was stopped goes on from its last checkpoint.

What follows -- are flags of the program for every trial: where the data is, which TPU, how much of a study is wanted.

    python -m studies.sweep studies/shipped/optimizers.py -- --tpu=NODE --data_dir=gs://BUCKET/imagenet

--emit=gke runs nothing. It prints a job of Google Kubernetes Engine for each trial, which keeps what it leaves in
--out=gs://BUCKET/FOLDER; python -m studies.compare draws what they have come to.

A trial uses all the cores that there are, whatever --workers is: the last bits of its results depend on the number of
threads, and the same trial run alone is to give the same. Where --workers is more than 1, the flag intra_op_threads=1
in a study makes room.

exit codes:
  0    done, as far as was asked for
  1    a trial failed, or was stopped by others; the same command runs it again
  2    there is something to change first; nothing was run
  75   ended by SIGTERM; the same command goes on
  130  ended by Ctrl-C; the same command goes on
"""

from studies import extras

if __name__ == '__main__':
    extras.require('studies')

import argparse
import contextlib
import fcntl
import fnmatch
import json
import os
import signal
import statistics
import sys
import time
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import tensorflow as tf
from absl import app

from console.errors import RESUME
from console.messages import shown
from console.screen import duration
from data import remote
from data.formats import FORMATS
from inception_v3 import flags
from inception_v3.data_set import fit_to_data_set, splits_of
from inception_v3.model_dir.files import check_writable, text_of, write_whole
from studies.arguments import number_of
from studies.report import files as report_files
from studies.report import runs
from studies.study import Study, StudyError, load
from studies.sweep import gke, trials
from studies.sweep.live import Display, Progress, counts
from studies.sweep.trials import State, Trial
from studies.sweep.workers import Place, Running, ThisMachine

PROGRAM = ('python', '-m', 'inception_v3.main')
OUT = os.path.join('runs', 'studies')

_FAILED = 1
_MISTAKE = 2
_INTERRUPTED = 130
# Seconds between looks at the trials that run.
_POLL_INTERVAL = 0.2
# Names of trials that a message lists.
_NAMES_SHOWN = 12


class Plan(NamedTuple):
    """What there is to do.

    Attributes:
      file: of the study.
      study: the study, or its small version.
      out: the sweep's folder.
      all_trials: of the study.
      selected: those that this call is about.
    """

    file: str
    study: Study
    out: str
    all_trials: List[Trial]
    selected: List[Trial]


class Stopping:
    """Takes note of Ctrl-C, SIGTERM and SIGHUP, while it is open: between trials there is nothing to interrupt.

    Attributes:
      signal: the first that came; None if none has.
      times: how many have come.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signal: Optional[signal.Signals] = None
        self.times = 0

    def __enter__(self) -> 'Stopping':
        self._before = {number: signal.getsignal(number) for number in self._SIGNALS}
        for number, handler in self._before.items():
            # `nohup` ignores SIGHUP.
            if handler != signal.SIG_IGN:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *unused: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.times += 1

    @property
    def exit_code(self) -> Optional[int]:
        """What to exit with; None if nothing has come."""
        if self.signal is None:
            return None
        return _INTERRUPTED if self.signal is signal.SIGINT else RESUME


def perform(
    all_progress: Sequence[Progress], place: Place, display: Display, stopping: Stopping, tell: Callable[[], None]
) -> None:
    """Runs the trials that are not done.

    Args:
      all_progress: the trials; it is kept up to date.
      place: where they run.
      display: where it is shown.
      stopping: whether to stop.
      tell: is called after trials have ended, and the next ones have been started.
    """
    waiting = [progress for progress in all_progress if progress.state is not State.DONE]
    running: List[Tuple[Progress, Running]] = []
    stops, news = 0, False
    while running or (waiting and not stopping.times):
        while waiting and not stopping.times and len(running) < place.slots:
            progress = waiting.pop(0)
            progress.start()
            try:
                running.append((progress, place.start(progress.trial)))
            except OSError as error:
                _end(progress, trials.not_run(f'cannot be started: {error}'), display)
        if news:
            tell()
        if stopping.times > stops:
            _stop([trial for _, trial in running], stopping, display)
            stops = stopping.times
        ended = [progress for progress, trial in running if _has_ended(progress, trial, display)]
        running = [(progress, trial) for progress, trial in running if progress not in ended]
        news = bool(ended)
        display.update()
        time.sleep(_POLL_INTERVAL)


def _has_ended(progress: Progress, running: Running, display: Display) -> bool:
    try:
        outcome = running.poll()
    except (OSError, tf.errors.OpError) as error:
        running.kill()
        outcome = trials.not_run(f'its outcome cannot be kept: {error}')
    if outcome:
        _end(progress, outcome, display)
    return outcome is not None


def _end(progress: Progress, outcome: trials.Outcome, display: Display) -> None:
    progress.end(outcome)
    took = f' after {duration(progress.seconds)}' if progress.seconds is not None else ''
    text = f'{progress.trial.name}: {progress.state.value}{took}'
    if progress.state is State.DONE:
        text += f', top-1 {progress.evaluation.top_1:.2%}' if progress.evaluation else ''
    else:
        text += f': {progress.reason}'
    display.say(text)


def _stop(running: Sequence[Running], stopping: Stopping, display: Display) -> None:
    first = stopping.times == 1
    if first and stopping.signal and running:
        display.say(
            f'{stopping.signal.name}: the trials that run save their last step and end; a second one kills them'
        )
    for trial in running:
        if first:
            trial.stop()
        else:
            trial.kill()


def comparison_of(plan: Plan, all_progress: Sequence[Progress], program: Sequence[str]) -> runs.Comparison:
    """What the report is of: all cases, with what their trials have left so far, or the commands that will run them."""
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
    """What a sweep ends with on the screen: a line per case, what failed, and where the report is."""
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
            lines.append(f'failed: {progress.trial.name}: {progress.reason}; its log: {progress.trial.log}')
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


def main(argv: Sequence[str], program: Sequence[str] = PROGRAM) -> int:
    """Runs a command line, and returns its exit code.

    Args:
      argv: the command line.
      program: what the trials are command lines of.
    """
    try:
        own, given = _divided(argv[1:])
        arguments = _parser().parse_args(own)
        if arguments.out == '':
            raise StudyError('--out=: must be the path of a folder.')
        plan = _plan(arguments, given)
        if arguments.emit:
            print(_jobs(plan, arguments.image), end='')
            return 0
        if arguments.list:
            _list(plan, program)
            return 0
        return _run(arguments, plan, program)
    except remote.UnreachableError as error:
        return _fail(str(error), _FAILED)
    except app.UsageError as error:
        return _fail(str(error), _MISTAKE)
    except KeyboardInterrupt:
        return _fail('interrupted; nothing was lost', _INTERRUPTED)
    except (OSError, tf.errors.OpError) as error:
        return _fail(str(error), _FAILED)


def _list(plan: Plan, program: Sequence[str]) -> None:
    try:
        for trial in plan.selected:
            print(f'{trials.command(program, trial)}  # {trials.state_of(trial).value}')
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads the list has seen enough; what is left of it is not to fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(trials.cost_of(plan.study, plan.selected), file=sys.stderr)


def _run(arguments: argparse.Namespace, plan: Plan, program: Sequence[str]) -> int:
    if remote.is_remote(plan.out):
        raise StudyError(f'--out={plan.out}: must be a folder of this machine, or one that it shares with others.')
    check_writable('out', plan.out)
    lock = os.open(plan.out, os.O_RDONLY)
    try:
        _lock(lock, plan.out)
        _check_folder(plan)
        _prepare_data(plan)
        _write_study(plan, program)
        all_progress = [Progress(trial, trials.state_of(trial)) for trial in plan.all_trials]
        names = {trial.name for trial in plan.selected}
        selected = [progress for progress in all_progress if progress.trial.name in names]
        for progress in all_progress:
            outcome = trials.outcome_of(progress.trial)
            progress.reason = outcome.reason if outcome else ''
        with contextlib.ExitStack() as running:
            place = running.enter_context(_place(arguments, program, plan.out))
            _check_tpus([p.trial for p in selected if p.state is not State.DONE], place.slots)
            # After Ray, which answers SIGTERM in its own way.
            stopping = running.enter_context(Stopping())
            with Display(sys.stderr, all_progress) as display:

                def tell() -> None:
                    try:
                        report_files.write(plan.out, comparison_of(plan, all_progress, program))
                    # The trials are worth more than what is told of them.
                    except Exception as error:
                        display.say(f'the report cannot be written: {type(error).__name__}: {error}')

                perform(selected, place, display, stopping, tell)
                tell()
        print(summary(plan, all_progress))
        if all(progress.state is State.DONE for progress in selected):
            return 0
        if stopping.exit_code is not None:
            return _fail('stopped; the same command goes on', stopping.exit_code)
        return _FAILED
    finally:
        os.close(lock)


def _place(arguments: argparse.Namespace, program: Sequence[str], out: str) -> Place:
    if arguments.ray is None:
        return ThisMachine(arguments.workers, program)
    extras.require('ray')
    from studies.sweep.ray_cluster import RayCluster

    return RayCluster(arguments.ray, arguments.workers, program, out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='python -m studies.sweep',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('study', metavar='STUDY', help='file of the study, .py or .yaml')
    parser.add_argument('--out', metavar='DIR', help=f'folder of the sweep, made if need be (default {OUT}/NAME)')
    parser.add_argument('--digits', action='store_true', help="the study's small version, on the digits")
    parser.add_argument('--list', action='store_true', help="print the trials' command lines and states, and run none")
    parser.add_argument('--filter', metavar='GLOB', help="only trials with such names (CASE/seed-N), as '*sgd*/seed-1'")
    parser.add_argument(
        '--limit', type=number_of(int, 1), metavar='N', help='only the first N trials that are not done'
    )
    parser.add_argument(
        '--workers',
        type=number_of(int, 1),
        default=1,
        metavar='N',
        help='trials at a time, here, or on the smallest node of --ray (default 1)',
    )
    parser.add_argument(
        '--ray',
        metavar='ADDRESS',
        help='run the trials on a Ray cluster, HOST:PORT or auto; its nodes must share --out and the working directory',
    )
    parser.add_argument('--emit', choices=['gke'], help='print a Kubernetes job for each trial, and run none')
    parser.add_argument('--image', metavar='IMAGE', help='the container of these jobs, as deploy/Dockerfile makes it')
    return parser


def _divided(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The sweep's own arguments, and those after --, the program's."""
    end = arguments.index('--') if '--' in arguments else len(arguments)
    return list(arguments[:end]), list(arguments[end + 1 :])


def _jobs(plan: Plan, image: Optional[str]) -> str:
    if not image:
        raise StudyError("--emit=gke: name the program's container with --image, as gcr.io/PROJECT/inception-v3.")
    jobs = [gke.Job(f'{plan.study.name}/{trial.name}', trial.arguments, trial.config) for trial in plan.selected]
    return gke.manifests(jobs, image)


def _plan(arguments: argparse.Namespace, given: Sequence[str]) -> Plan:
    try:
        study = load(arguments.study)
        study = study.small() if arguments.digits else study
        study = study.with_flags(_flags_of(given))
        out = os.path.join(OUT, study.name) if arguments.out is None else arguments.out
        all_trials = trials.trials_of(study, out)
    except StudyError as error:
        raise StudyError(f'{arguments.study}: {error}')
    selected = all_trials
    if arguments.filter is not None:
        selected = [trial for trial in all_trials if fnmatch.fnmatchcase(trial.name, arguments.filter)]
        if not selected:
            names = ', '.join(trial.name for trial in all_trials[:_NAMES_SHOWN])
            more = ', …' if len(all_trials) > _NAMES_SHOWN else ''
            raise StudyError(f'--filter={shown(arguments.filter)}: no trial has such a name. There are {names}{more}.')
    if arguments.limit is not None:
        selected = [trial for trial in selected if trials.state_of(trial) is not State.DONE][: arguments.limit]
    return Plan(arguments.study, study, out, all_trials, selected)


def _flags_of(given: Sequence[str]) -> Mapping[str, Any]:
    read = flags.read(['sweep', *given])
    if read.help or read.verbose or read.preset:
        raise StudyError('after --: only flags of a run; a preset is for the study to name.')
    return read.fields


def _lock(folder: int, out: str) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StudyError(f'--out={out}: another sweep runs there. Wait for its end, or name another folder.')
    except OSError:
        # A file system of other machines may not have such locks. Then the program's own, in each model_dir, decides.
        pass


def _check_folder(plan: Plan) -> None:
    """Refuses a folder of another study, or of the same one with other flags; names what is no part of it."""
    content = text_of(os.path.join(plan.out, trials.STUDY_FILE))
    try:
        name = json.loads(content)['name'] if content else plan.study.name
    except (KeyError, TypeError, ValueError):
        name = plan.study.name
    if name != plan.study.name:
        raise StudyError(f'--out={plan.out}: holds the study {shown(name)}; name another folder for {plan.study.name}.')
    trials.check_unchanged(plan.all_trials)
    others = trials.strangers(plan.out, plan.all_trials)
    if others:
        names = ', '.join(others[:_NAMES_SHOWN]) + (', …' if len(others) > _NAMES_SHOWN else '')
        print(f'no part of the study (any more), and left alone: {len(others)} folders: {names}', file=sys.stderr)


def _prepare_data(plan: Plan) -> None:
    """Makes the digits, if the trials need them, before several make them at a time; checks that the data is there."""
    seen: Set[Tuple[Any, ...]] = set()
    for trial in plan.selected:
        config = trial.config
        key = (config.use_data, config.data_dir, config.data_format, config.num_classes)
        if key in seen:
            continue
        seen.add(key)
        try:
            config = fit_to_data_set(trial.command_line)
            if config.use_data == 'real':
                for split in splits_of(config):
                    FORMATS[config.data_format].find_shards(config.data_dir, split)
        except remote.UnreachableError:
            raise
        except app.UsageError as error:
            raise StudyError(f'{plan.file}: case {trial.case}: {error}')


def _check_tpus(waiting: Sequence[Trial], slots: int) -> None:
    """Refuses to run several trials at a time where they would share a TPU, which is for one program."""
    tpus = [t.config.tpu or t.config.master for t in waiting if t.config.use_tpu and not t.config.is_emulated]
    shared = next((tpu for tpu in tpus if tpus.count(tpu) > 1), None)
    if shared and slots > 1:
        raise StudyError(
            f'--tpu={shared}: is of several trials, and would run {slots} at a time, but a TPU runs one. Leave out '
            '--workers, or name a TPU for each.'
        )


def _write_study(plan: Plan, program: Sequence[str]) -> None:
    study = plan.study
    content = {
        'name': study.name,
        'question': study.question,
        'base': {'preset': study.preset, 'flags': dict(study.flags)},
        'cases': [{'name': case.name, 'settings': dict(case.settings)} for case in study.cases()],
        'seeds': study.all_seeds,
        'report': list(study.report),
        'cost': trials.cost_of(study, plan.all_trials)._asdict(),
        'commands': {trial.name: trials.command(program, trial) for trial in plan.all_trials},
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + '\n'
    write_whole(os.path.join(plan.out, trials.STUDY_FILE), text)


def _fail(message: str, code: int) -> int:
    print(f'error: {message}', file=sys.stderr, flush=True)
    return code


if __name__ == '__main__':
    sys.exit(main(sys.argv))
