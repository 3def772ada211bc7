"""The trials of a study: each is a command line of the program with a folder of its own, which tells how it went."""

import enum
import json
import os
import re
import shlex
import signal
import socket
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from console.errors import RESUME
from console.messages import shown
from inception_v3 import flags
from inception_v3.config import Config, ConfigError, differences
from inception_v3.model_dir.evaluations import Evaluation, read_unchanged
from inception_v3.model_dir.files import now, recorded_config, text_of, write_whole
from inception_v3.presets import PRESETS
from studies.study import Study, StudyError

TRIALS_FOLDER = 'trials'
MODEL_FOLDER = 'model'
LOG_FILE = 'log.txt'
COMMAND_FILE = 'command.sh'
OUTCOME_FILE = 'outcome.json'
STUDY_FILE = 'study.json'

# What the program exits with that somebody has ended, the last two while it was starting: the same command goes on.
_ENDED = (RESUME, 130, -signal.SIGTERM, -signal.SIGINT)
# What a run settles by itself, if no flag does: by its data set, or by the machine that it began on.
_SETTLED = ('num_train_images', 'num_eval_images', 'num_classes', 'intra_op_threads')
_LONGEST_PATH = 4096
# The step time of a study is of a batch of so many images.
_IMAGES_PER_STEP = 1024


class State(enum.Enum):
    """How far a trial has come."""

    WAITING = 'waiting'
    STOPPED = 'stopped'
    RUNNING = 'running'
    DONE = 'done'
    FAILED = 'failed'


class Trial(NamedTuple):
    """A run of a study.

    Attributes:
      name: of case and seed, unique.
      case: the name of the case.
      seed: the run's.
      folder: holds all that it leaves.
      arguments: of the program, complete.
      command_line: what they say.
    """

    name: str
    case: str
    seed: int
    folder: str
    arguments: Tuple[str, ...]
    command_line: flags.CommandLine

    @property
    def config(self) -> Config:
        """The configuration, as far as the command line decides it."""
        return self.command_line.config

    @property
    def model_dir(self) -> str:
        """The run's."""
        return str(self.config.model_dir)

    @property
    def log(self) -> str:
        """The file of all that the trial has printed."""
        return os.path.join(self.folder, LOG_FILE)


class Outcome(NamedTuple):
    """How a trial has ended: `outcome.json`.

    Attributes:
      exit_code: of the program; negative if a signal has ended it.
      reason: why, if it is not 0: its last message.
      start: UTC, ISO 8601.
      end: UTC, ISO 8601.
      host: where it ran.
    """

    exit_code: int
    reason: str
    start: str
    end: str
    host: str

    @property
    def state(self) -> State:
        """What became of the trial."""
        if self.exit_code in _ENDED:
            return State.STOPPED
        return State.FAILED if self.exit_code else State.DONE

    def write(self, folder: str) -> None:
        """Writes it into a trial's folder, whole or not at all."""
        write_whole(os.path.join(folder, OUTCOME_FILE), json.dumps(self._asdict(), indent=2) + '\n')


class Cost(NamedTuple):
    """What a study costs.

    Attributes:
      trials: how many.
      steps: of training, of all trials.
      hours: of training, on a v2-8; None if the study does not tell the time of a step.
    """

    trials: int
    steps: int
    hours: Optional[float]

    def __str__(self) -> str:
        text = f'{self.trials} trials, {self.steps:,} training steps'
        return text if self.hours is None else f'{text}, {self.hours:,.0f} hours of training on a v2-8'


def trials_of(study: Study, out: str) -> List[Trial]:
    """The trials of a study, in the order of its cases, and of their seeds.

    Args:
      study: the study.
      out: the sweep's folder.

    Raises:
      StudyError: the program refuses a case's flags.
    """
    trials = []
    for case in study.cases():
        for seed in study.all_seeds:
            name = f'{case.name}/seed-{seed}'
            folder = os.path.join(out, TRIALS_FOLDER, *name.split('/'))
            own = {**case.flags, 'seed': seed, 'model_dir': os.path.join(folder, MODEL_FOLDER)}
            if 'export_dir' in PRESETS[study.preset]:
                own['export_dir'] = ''
            arguments = (f'--preset={study.preset}', *[f'--{flag}={value}' for flag, value in own.items()])
            try:
                command_line = flags.parse([flags.__name__, *arguments])
            except ConfigError as error:
                raise StudyError(f'case {case.name}: {error}')
            trials.append(Trial(name, case.name, seed, folder, arguments, command_line))
    return trials


def cost_of(study: Study, trials: Iterable[Trial]) -> Cost:
    """What the training of these trials costs; a step takes a time in proportion to its images."""
    configs = [trial.config for trial in trials]
    hours = None
    if study.step_ms is not None:
        images = sum(config.train_steps * config.train_batch_size for config in configs)
        hours = images / _IMAGES_PER_STEP * study.step_ms / 3.6e6
    return Cost(len(configs), sum(config.train_steps for config in configs), hours)


def command(program: Sequence[str], trial: Trial) -> str:
    """A trial's command line, for a shell."""
    return ' '.join(shlex.quote(word) for word in [*program, *trial.arguments])


def script(program: Sequence[str], trial: Trial) -> str:
    """A shell script that runs a trial in the folder where the script is."""
    model_dir = f'--model_dir={trial.model_dir}'
    here = f'--model_dir="$(dirname "$0")"/{MODEL_FOLDER}'
    words = [here if word == model_dir else shlex.quote(word) for word in trial.arguments]
    start = ' '.join(shlex.quote(word) for word in program)
    lines = ['#!/bin/sh', f'# {trial.name}, run in {shown(os.getcwd(), _LONGEST_PATH)}', f'exec {start} \\']
    return '\n'.join(lines) + '\n    ' + ' \\\n    '.join(words) + '\n'


def not_run(reason: str, exit_code: int = 1) -> Outcome:
    """What is to be said of a trial that was not run, or whose outcome could not be kept."""
    return Outcome(exit_code, reason, now(), now(), socket.gethostname())


def outcome_of(trial: Trial) -> Optional[Outcome]:
    """How a trial has ended last; None if it has not, or was lost."""
    try:
        return Outcome(**json.loads(text_of(os.path.join(trial.folder, OUTCOME_FILE))))
    except (TypeError, ValueError):
        return None


def last_evaluation(trial: Trial) -> Optional[Evaluation]:
    """A trial's evaluation of the highest step, as it was trained; None if there is none."""
    evaluations = read_unchanged(trial.model_dir)
    return evaluations[-1] if evaluations else None


def state_of(trial: Trial) -> State:
    """How far a trial that does not run has come: it is done when its last step has been evaluated, too."""
    outcome = outcome_of(trial)
    if not outcome:
        return State.STOPPED if recorded_config(trial.model_dir) else State.WAITING
    if outcome.state is State.DONE:
        steps = [evaluation.step for evaluation in read_unchanged(trial.model_dir)]
        return State.DONE if trial.config.train_steps in steps else State.STOPPED
    return outcome.state


def check_unchanged(trials: Iterable[Trial]) -> None:
    """Makes sure that what the trials' folders hold was made with the flags that they have now.

    Raises:
      StudyError: some were not; going on would mix two experiments.
    """
    changed: Dict[str, List[str]] = {}
    for trial in trials:
        recorded = recorded_config(trial.model_dir)
        if not recorded:
            continue
        own = [name for name in _SETTLED if name not in trial.command_line.given]
        # A folder may have been moved.
        found = [c for c in differences(recorded, trial.config) if c.split(':')[0] not in (*own, 'model_dir')]
        if found:
            changed[trial.folder] = found
    if changed:
        first, found = next(iter(changed.items()))
        others = f', and so were {len(changed) - 1} others' if len(changed) > 1 else ''
        raise StudyError(
            f'{first}: was run with other flags than the study has now ({"; ".join(found)}){others}. '
            'Give the study another --out, or remove the folders of what is to be run again.'
        )


def strangers(out: str, trials: Iterable[Trial]) -> List[str]:
    """The folders of trials in a sweep's folder that are none of these."""
    own = {os.path.normpath(trial.folder) for trial in trials}
    top = os.path.join(out, TRIALS_FOLDER)
    found = []
    for case in _folders_in(top):
        found += [folder for folder in _folders_in(case) if os.path.normpath(folder) not in own]
    return found


def _folders_in(folder: str) -> List[str]:
    """Those folders alone: file managers leave files of their own anywhere."""
    if not os.path.isdir(folder):
        return []
    return [entry.path for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if entry.is_dir()]


def reason_in(log: str) -> str:
    """Why a program has failed, by what it has printed: its last error, or else its last line."""
    errors = re.findall(r'^error: (.*)$', log, re.MULTILINE)
    lines = [line for line in log.splitlines() if line.strip()]
    return errors[-1] if errors else lines[-1].strip() if lines else ''
