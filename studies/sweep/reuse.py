"""Takes trials from other sweeps: a finished trial with the same flags and seed is copied, not run again."""

import dataclasses
import glob
import os
import shutil
import tempfile
from typing import Iterable, Iterator, List, NamedTuple, Sequence

from inception_v3.run.files import recorded_config
from studies.study import StudyError
from studies.sweep import trials
from studies.sweep.trials import STUDY_FILE, TRIALS_FOLDER, State, Trial

# The beginning of the names of folders in which a copy is made.
_UNFINISHED = '.unfinished-'


class Taken(NamedTuple):
    """A trial that was copied, and the folder of the trial that it is a copy of."""

    trial: Trial
    source: str


def take(waiting: Iterable[Trial], sweeps: Sequence[str]) -> List[Taken]:
    """Copies finished trials of other sweeps into the folders of trials that have not started.

    Args:
      waiting: trials; those that have started are left alone.
      sweeps: folders of other sweeps, in the order in which they are searched.

    Raises:
      StudyError: a folder holds no sweep, or a copy cannot be written.
    """
    for sweep in sweeps:
        if glob.escape(sweep) != sweep:
            raise StudyError(f'--reuse={sweep}: must not contain any of the characters * ? [, as no model_dir may.')
        if not os.path.isfile(os.path.join(sweep, STUDY_FILE)):
            raise StudyError(f'--reuse={sweep}: holds no sweep; it has no {STUDY_FILE}.')
    taken = []
    for trial in waiting:
        if trials.state_of(trial) is not State.WAITING:
            continue
        source = next(_equal(trial, sweeps), None)
        if source:
            _copy(source, trial.folder)
            taken.append(Taken(trial, source))
    return taken


def _equal(trial: Trial, sweeps: Iterable[str]) -> Iterator[str]:
    """The folders of finished trials with the flags and the seed of a trial."""
    for sweep in sweeps:
        pattern = os.path.join(sweep, TRIALS_FOLDER, '*', f'seed-{trial.seed}')
        for folder in sorted(glob.glob(pattern)):
            there = _moved(trial, folder)
            if trials.state_of(there) is State.DONE and _has_the_flags(there):
                yield folder


def _has_the_flags(trial: Trial) -> bool:
    """Whether the run in a trial's folder is known to have the trial's flags."""
    return recorded_config(trial.model_dir) is not None and not trials.changed_flags(trial)


def _moved(trial: Trial, folder: str) -> Trial:
    """A trial as if its folder were another one."""
    config = dataclasses.replace(trial.config, model_dir=os.path.join(folder, trials.MODEL_FOLDER))
    return trial._replace(folder=folder, command_line=trial.command_line._replace(config=config))


def _copy(source: str, target: str) -> None:
    """Copies a folder, whole or not at all, in place of what a trial left that ended before its run began."""
    case = os.path.dirname(target)
    try:
        os.makedirs(case, exist_ok=True)
        for left in glob.glob(os.path.join(case, f'{_UNFINISHED}*')):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=case) as unfinished:
            whole = shutil.copytree(source, os.path.join(unfinished, 'trial'))
            if os.path.isdir(target):
                os.rename(target, os.path.join(unfinished, 'before'))
            os.rename(whole, target)
    except (OSError, shutil.Error) as error:
        raise StudyError(f'{target}: cannot be written: {error}')
