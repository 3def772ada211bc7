"""The GPUs of this machine, of which each trial gets its own: two trials on one would share its memory and its time."""

import os
from typing import Iterable, List, Optional, Sequence, Tuple

from inception_v3.tpu import accelerator
from tools.studies.study import StudyError
from tools.studies.sweep.trials import Process, RunningTrial, Trial

# CUDA's list of the GPUs that a process sees: numbers, or names such as GPU-8932f937.
VISIBLE = 'CUDA_VISIBLE_DEVICES'


def per_trial(asked: Optional[int], waiting: Iterable[Trial], are_there: bool) -> int:
    """The number of GPUs of each trial: as asked for; else 1 if there are any and a trial may use one, else 0."""
    if asked is not None:
        return asked
    may_use_one = any(not trial.config.use_tpu and trial.config.accelerator != 'cpu' for trial in waiting)
    return int(are_there and may_use_one)


def here() -> List[str]:
    """The GPUs that this process sees, as `CUDA_VISIBLE_DEVICES` names them."""
    count, named = accelerator.visible_gpus(), os.environ.get(VISIBLE)
    return [name.strip() for name in named.split(',')][:count] if named else [str(number) for number in range(count)]


class GpusOfTrials:
    """Starts trials on this machine, each with GPUs of its own; with 0 GPUs per trial, each sees all of them.

    Raises StudyError if there are too few GPUs for as many trials at a time as there are workers.
    """

    def __init__(self, gpus: Sequence[str], each: int, workers: int):
        if each * workers > len(gpus):
            fitting = len(gpus) // each
            advice = f'Give --workers={fitting}' if fitting else 'Give a smaller --gpus_per_trial'
            raise StudyError(
                f'--workers={workers}: with --gpus_per_trial={each}, the trials need {each * workers} GPUs at a time, '
                f'and TensorFlow sees {len(gpus)} on this machine. {advice}, or share GPUs with --gpus_per_trial=0.'
            )
        self._gpus, self._each = gpus, each
        self._in_use: List[Tuple[Process, List[str]]] = []

    def start(self, trial: Trial) -> RunningTrial:
        """Starts a trial on the first GPUs that no running trial has."""
        if not self._each:
            return Process(trial)
        self._in_use = [(process, gpus) for process, gpus in self._in_use if process.is_running()]
        taken = {gpu for _, gpus in self._in_use for gpu in gpus}
        own = [gpu for gpu in self._gpus if gpu not in taken][: self._each]
        process = Process(trial, {VISIBLE: ','.join(own)})
        self._in_use.append((process, own))
        return process
