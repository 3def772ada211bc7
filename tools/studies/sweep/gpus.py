"""Gives each trial GPUs of its own: two trials on one GPU would share its memory and its time."""

import os
from typing import Iterable, List, Optional, Sequence, Tuple

from inception_v3.config import ALL_GPUS
from inception_v3.tpu import accelerator
from tools.studies.study import StudyError
from tools.studies.sweep.trials import Process, RunningTrial, Trial

# CUDA's list of the GPUs that a process sees: numbers, or names such as GPU-8932f937.
VISIBLE = 'CUDA_VISIBLE_DEVICES'


def per_trial(asked: Optional[int], waiting: Iterable[Trial], are_there: bool) -> int:
    """The number of GPUs per trial: the requested one, else the largest `num_gpus` of trials on GPUs, 0 without any.

    Raises StudyError if the largest is unknown, or a trial has more replicas than GPUs.
    """
    on_gpus = [each.config for each in waiting if not each.config.use_tpu and each.config.accelerator != 'cpu']
    most = max((config.num_gpus for config in on_gpus), default=0)
    if asked is None:
        if not are_there or not on_gpus:
            return 0
        if any(config.num_gpus == ALL_GPUS for config in on_gpus):
            raise StudyError(
                f'--num_gpus={ALL_GPUS}: stands for all GPUs, and each trial has its own. Give their number, or '
                '--gpus_per_trial.'
            )
        return most
    if 0 < asked < most:
        raise StudyError(
            f'--gpus_per_trial={asked}: a trial has --num_gpus={most}, and needs as many. Give --gpus_per_trial={most}.'
        )
    return asked


def here() -> List[str]:
    """The GPUs that this process sees, as `CUDA_VISIBLE_DEVICES` names them."""
    count, named = accelerator.visible_gpus(), os.environ.get(VISIBLE)
    return [name.strip() for name in named.split(',')][:count] if named else [str(number) for number in range(count)]


class GpusOfTrials:
    """Starts trials on this machine, each with GPUs of its own; with 0 GPUs per trial, each sees all of them.

    Raises StudyError if there are too few GPUs for `workers` trials at a time.
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
