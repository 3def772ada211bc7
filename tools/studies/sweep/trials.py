"""The trials of a study: command lines of the program, their processes, and the folders that record their states."""

import abc
import contextlib
import ctypes
import dataclasses
import enum
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import types
from typing import Callable, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from compat.errors import INTERRUPTED, RESUME, RETRY
from compat.messages import full
from console import outputs, processes
from console.json_content import from_json, record
from data.files import text_of, write_whole
from inception_v3 import class_weights, flags
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import differences, now, read_config, recorded_config
from inception_v3.presets import PRESETS, own_images, steps_of_epochs
from inception_v3.rules import has_effect
from inception_v3.run.evaluations import Evaluation, read_unchanged
from tools.studies.study import Study, StudyError

TRIALS_FOLDER = 'trials'
MODEL_FOLDER = 'model'
COMMAND_FILE = 'command.sh'
OUTCOME_FILE = 'outcome.json'
STUDY_FILE = 'study.json'

# Exit codes of a program that was stopped; the negative ones mean that the signal came while it was starting.
_STOPPED = (RESUME, INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)
# Settings that a run takes from its data set or its first machine unless a flag sets them.
_AUTOMATIC = ('num_train_images', 'num_eval_images', 'num_classes', 'intra_op_threads')
# The batch size that the step time of a study refers to.
_IMAGES_PER_STEP = 1024
# Bytes at the end of a log that are searched for the reason of a failure.
_LOG_END = 1 << 16
_POLL_INTERVAL = 0.25

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class State(enum.Enum):
    """The state of a trial."""

    WAITING = 'waiting'
    STOPPED = 'stopped'
    RUNNING = 'running'
    DONE = 'done'
    FAILED = 'failed'


class Trial(NamedTuple):
    """One run of a study, named CASE/seed-N, with a folder of everything that it writes.

    `arguments` are all arguments of the program; `command_line` is the same, parsed. `processes.started` describes
    `program`.
    """

    name: str
    case: str
    seed: int
    folder: str
    program: Tuple[str, ...]
    arguments: Tuple[str, ...]
    command_line: flags.CommandLine

    @property
    def config(self) -> Config:
        """The configuration that the command line gives; `run_config` adds the settings of the data set."""
        return self.command_line.config

    @property
    def model_dir(self) -> str:
        """The model_dir of the run."""
        return str(self.config.model_dir)

    @property
    def log(self) -> str:
        """Path of the file with everything that the trial printed."""
        return os.path.join(self.folder, 'log.txt')


class Outcome(NamedTuple):
    """The end of a trial, recorded in `outcome.json`.

    The exit code is -N if signal N ended the program; the reason is its last error message, if the code is not 0.
    """

    exit_code: int
    reason: str
    start: str
    end: str
    host: str

    @property
    def state(self) -> State:
        """The state of the trial, judged by the exit code alone."""
        if self.exit_code in _STOPPED:
            return State.STOPPED
        return State.FAILED if self.exit_code else State.DONE

    def write(self, folder: str) -> None:
        """Writes the file into a trial's folder, whole or not at all."""
        write_whole(os.path.join(folder, OUTCOME_FILE), json.dumps(self._asdict(), indent=2) + '\n')


def trials_of(study: Study, out: str, program: Optional[Tuple[str, ...]] = None) -> List[Trial]:
    """The trials of a study in the sweep's folder, by case and seed; StudyError if the program refuses their flags."""
    program = program or processes.trainer()
    trials = []
    for case in study.cases():
        for seed in study.all_seeds:
            folder = os.path.join(out, TRIALS_FOLDER, case.name, f'seed-{seed}')
            own = {**case.flags, 'seed': seed, 'model_dir': os.path.join(folder, MODEL_FOLDER)}
            if 'export_dir' in PRESETS[study.preset]:
                own['export_dir'] = ''
            arguments = (f'--preset={study.preset}', *[f'--{flag}={value}' for flag, value in own.items()])
            try:
                command_line = flags.parse([flags.__name__, *arguments])
            except ConfigError as error:
                raise StudyError(f'case {case.name}: {error}')
            name = f'{case.name}/seed-{seed}'
            trials.append(Trial(name, case.name, seed, folder, program, arguments, command_line))
    return trials


def cost_of(study: Study, trials: Iterable[Trial]) -> str:
    """The number of trials and training steps; if the time of a step is known, also the hours on a v2-8.

    Assumes that the time of a step is proportional to its batch size.
    """
    configs = [run_config(trial) for trial in trials]
    text = f'{len(configs)} trials, {sum(config.train_steps for config in configs):,} training steps'
    if study.step_ms is None:
        return text
    images = sum(config.train_steps * config.train_batch_size for config in configs)
    return f'{text}, {images / _IMAGES_PER_STEP * study.step_ms / 3.6e6:,.0f} hours of training on a v2-8'


def command(trial: Trial) -> str:
    """A trial's command line, quoted for a shell."""
    return ' '.join(shlex.quote(word) for word in [*trial.program, *trial.arguments])


def script(trial: Trial) -> str:
    """A shell script that runs a trial and writes into the folder of the script."""
    model_dir = f'--model_dir={trial.model_dir}'
    here = f'--model_dir="$(dirname "$0")"/{MODEL_FOLDER}'
    words = [here if word == model_dir else shlex.quote(word) for word in trial.arguments]
    start = ' '.join(shlex.quote(word) for word in trial.program)
    lines = ['#!/bin/sh', f'# {trial.name}, run in {full(os.getcwd())}', f'exec {start} \\']
    return '\n'.join(lines) + '\n    ' + ' \\\n    '.join(words) + '\n'


def not_run(reason: str, exit_code: int = RETRY) -> Outcome:
    """The outcome of a trial that could not be run, or whose outcome could not be written."""
    return Outcome(exit_code, reason, now(), now(), socket.gethostname())


def outcome_of(trial: Trial) -> Optional[Outcome]:
    """The last outcome of a trial; None if it has not ended, or its machine failed."""
    try:
        return from_json(text_of(os.path.join(trial.folder, OUTCOME_FILE)), lambda values: record(Outcome, values))
    except ValueError:
        return None


def remove_outcome(trial: Trial) -> None:
    """Removes the outcome of an earlier start."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(trial.folder, OUTCOME_FILE))


def run_config(trial: Trial) -> Config:
    """A trial's configuration, as fitted to the data set of its run; before the run, that of its command line."""
    run = recorded_config(trial.model_dir)
    return _fitted(trial, run) if run else trial.config


def _fitted(trial: Trial, run: Config) -> Config:
    """A trial's configuration as `fit_to_data_set` gives it for the data set and the folder of a run."""
    given = trial.command_line.given
    automatic = {name: getattr(run, name) for name in _AUTOMATIC if name not in given}
    if class_weights.given(run) == trial.config.class_weights:
        automatic['class_weights'] = run.class_weights
    config = dataclasses.replace(trial.config, model_dir=run.model_dir, **automatic)
    if trial.command_line.preset == 'own_images':
        config = dataclasses.replace(config, **own_images(config, given))
    return dataclasses.replace(config, **steps_of_epochs(vars(config)))


def last_evaluation(trial: Trial) -> Optional[Evaluation]:
    """The evaluation of a trial's highest step with its training settings; None if there is none."""
    evaluations = read_unchanged(trial.model_dir)
    return evaluations[-1] if evaluations else None


def state_of(trial: Trial) -> State:
    """The state of a trial that is not running. A trial is done once its last step has been evaluated."""
    outcome = outcome_of(trial)
    if not outcome:
        return State.STOPPED if recorded_config(trial.model_dir) else State.WAITING
    if outcome.state is State.DONE:
        steps = [evaluation.step for evaluation in read_unchanged(trial.model_dir)]
        return State.DONE if run_config(trial).train_steps in steps else State.STOPPED
    return outcome.state


def check_unchanged(trials: Iterable[Trial]) -> None:
    """Raises StudyError if a trial's folder holds a run with other flags: resuming it could mix two experiments.

    Ignores settings that a run takes from its data set, its folder, which may have been moved, and flags that have no
    effect in either.
    """
    for trial in trials:
        try:
            run = read_config(trial.model_dir)
        except ConfigError as error:
            raise StudyError(f'{error} Name another folder with --out, or remove {trial.folder}, to run it again.')
        fitted = _fitted(trial, run) if run else trial.config
        changed = [
            change
            for change in differences(run or fitted, fitted)
            if any(has_effect(change.partition(':')[0], config) for config in (run, fitted) if config)
        ]
        if changed:
            raise StudyError(
                f'{trial.folder}: was run with other flags than the study has now ({"; ".join(changed)}). '
                'Name another folder with --out, or remove the folders of the trials to run again.'
            )


class RunningTrial(abc.ABC):
    """A trial that has been started."""

    @abc.abstractmethod
    def poll(self) -> Optional[Outcome]:
        """The outcome, once the trial has ended and the outcome is written; None before."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Asks the trial to save a checkpoint and end."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends the trial at once."""


class Place(NamedTuple):
    """A place where trials run."""

    # The number of trials that can run at the same time now.
    slots: Callable[[], int]
    # Raises OSError if the trial cannot be started, or its folder cannot be written to.
    start: Callable[[Trial], RunningTrial]


class Process(RunningTrial):
    """A trial as a process of this machine.

    The process has a session of its own, so that Ctrl-C at a terminal does not reach it. The kernel kills it when the
    thread that started it ends: a leftover process would block a resumed sweep. Its environment is that of this process
    and the given variables.
    """

    def __init__(self, trial: Trial, environment: Mapping[str, str] = types.MappingProxyType({})):
        self._trial = trial
        self._start = now()
        os.makedirs(trial.folder, exist_ok=True)
        remove_outcome(trial)
        path = os.path.join(trial.folder, COMMAND_FILE)
        write_whole(path, script(trial))
        os.chmod(path, 0o755)
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # The parent may have ended before the call.
            if os.getppid() != parent:
                os._exit(1)

        with open(outputs.replaceable(trial.log), 'ab') as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*processes.started(trial.program), *trial.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
                env={**os.environ, **environment},
            )

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def poll(self) -> Optional[Outcome]:
        """The outcome, if the process has ended; None before."""
        code = self._process.poll()
        if code is None:
            return None
        reason = ''
        if code < 0:
            reason = f'ended by {signal.Signals(-code).name}'
        elif code:
            with open(self._trial.log, 'rb') as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, end - _LOG_END))
                printed = file.read().decode(errors='replace').strip()
            # The last error message, or else the last line.
            messages = re.findall(r'^error: (.*)$', printed, re.MULTILINE) or [printed.rpartition('\n')[2].strip()]
            reason = messages[-1] or f'exit code {code}'
        outcome = Outcome(code, reason, self._start, now(), socket.gethostname())
        outcome.write(self._trial.folder)
        return outcome

    def stop(self) -> None:
        """Asks the trial to save a checkpoint and end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the trial at once."""
        self._process.kill()


def run(trial: Trial) -> Outcome:
    """Runs a trial to its end; SIGINT, even during its start, asks it to save a checkpoint and end."""
    interrupts: List[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        process = Process(trial)
        while True:
            if interrupts:
                interrupts.pop()
                process.stop()
            outcome = process.poll()
            if outcome:
                return outcome
            time.sleep(_POLL_INTERVAL)
    finally:
        signal.signal(signal.SIGINT, handler)
