"""Takes trials from other sweeps: a finished trial with the same flags and seed is copied, not run again."""

import dataclasses
import glob
import os
import shutil
import tempfile
from typing import Iterable, Iterator, List, NamedTuple, Sequence

from studies.study import StudyError
from studies.sweep import trials
from studies.sweep.trials import STUDY_FILE, TRIALS_FOLDER, State, Trial


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
            if trials.state_of(there) is State.DONE and not trials.changed_flags(there):
                yield folder


def _moved(trial: Trial, folder: str) -> Trial:
    """A trial as if its folder were another one."""
    config = dataclasses.replace(trial.config, model_dir=os.path.join(folder, trials.MODEL_FOLDER))
    return trial._replace(folder=folder, command_line=trial.command_line._replace(config=config))


def _copy(source: str, target: str) -> None:
    """Copies a folder, whole or not at all."""
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix='.unfinished-', dir=os.path.dirname(target)) as unfinished:
            whole = shutil.copytree(source, os.path.join(unfinished, 'trial'))
            os.rename(whole, target)
    except (OSError, shutil.Error) as error:
        raise StudyError(f'{target}: cannot be written: {error}')
