"""Takes trials from other sweeps: a finished trial with the same flags and seed is copied, not run again."""

import dataclasses
import glob
import os
import shutil
import tempfile
from typing import Iterable, List, Optional, Sequence, Tuple

from inception_v3.run.files import recorded_config
from studies.study import StudyError
from studies.sweep import trials
from studies.sweep.trials import STUDY_FILE, TRIALS_FOLDER, State, Trial

# The beginning of the names of folders in which a copy is made.
_UNFINISHED = '.unfinished-'


def take(waiting: Iterable[Trial], sweeps: Sequence[str]) -> List[Tuple[Trial, str]]:
    """Copies finished trials of other sweeps into the folders of trials that have not started.

    Args:
      waiting: trials; those that have started are left alone.
      sweeps: folders of other sweeps, in the order in which they are searched.

    Returns:
      The trials that were copied, and the folders that they are copies of.

    Raises:
      StudyError: a folder holds no sweep, or a copy cannot be written.
    """
    for sweep in sweeps:
        if glob.escape(sweep) != sweep:
            raise StudyError(f'--reuse={sweep}: must not contain any of the characters * ? [, as no model_dir may.')
        if not os.path.isfile(os.path.join(sweep, STUDY_FILE)):
            raise StudyError(f'--reuse={sweep}: holds no sweep; it has no {STUDY_FILE}.')
    copies = []
    for trial in waiting:
        source = _equal(trial, sweeps) if trials.state_of(trial) is State.WAITING else None
        if source:
            _copy(source, trial.folder)
            copies.append((trial, source))
    return copies


def _equal(trial: Trial, sweeps: Iterable[str]) -> Optional[str]:
    """The folder of the first finished trial that is known to have the flags and the seed of a trial."""
    for sweep in sweeps:
        for folder in sorted(glob.glob(os.path.join(sweep, TRIALS_FOLDER, '*', f'seed-{trial.seed}'))):
            config = dataclasses.replace(trial.config, model_dir=os.path.join(folder, trials.MODEL_FOLDER))
            there = trial._replace(folder=folder, command_line=trial.command_line._replace(config=config))
            is_done = trials.state_of(there) is State.DONE and recorded_config(there.model_dir) is not None
            if is_done and not trials.changed_flags(there):
                return folder
    return None


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
