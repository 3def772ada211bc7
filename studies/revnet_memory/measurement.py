"""Measures the memory and time of training steps, each training in a process of its own."""

import contextlib
import json
import math
import tempfile
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from benchmarks.measurement import MeasurementError
from console import processes
from studies.revnet_memory.process import OutOfMemoryError, Watched
from studies.revnet_memory.training import KEEP, Training

# The shortest round, in seconds.
_SHORTEST_ROUND = 1.5


class Measurement(NamedTuple):
    """The memory and time of a training; memory in MB (10⁶ bytes).

    Attributes:
      start_mb: resident before the first step: TensorFlow, graph and weights.
      held_mb: resident between two steps: also TensorFlow's optimized graph and its kernels.
      step_mb: peak of a step beyond `held_mb`: activations, gradients and work space.
      peak_mb: peak of the whole process.
      steps: steps in a round of time.
      cpu_seconds: CPU time of a step, of all threads; an element per round.
      seconds: elapsed time of a step; an element per round.
    """

    start_mb: float
    held_mb: float
    step_mb: float
    peak_mb: float
    steps: int
    cpu_seconds: List[float]
    seconds: List[float]


@contextlib.contextmanager
def _started(training: Training, limit: Optional[int] = None) -> Iterator[Watched]:
    """A process that begins to train."""
    command = processes.module('studies.revnet_memory.training')
    with tempfile.TemporaryDirectory() as model_dir, Watched(command, limit) as process:
        process.send(json.dumps([training, model_dir]))
        yield process


def measure(
    trainings: Sequence[Training], steps: int, repeats: int, failed: Dict[Training, str]
) -> Dict[Training, Measurement]:
    """Measures trainings, each in a new process. They start side by side; afterwards only one runs at a time.

    Args:
      trainings: the trainings.
      steps: minimum number of steps in a round; more if they fit into 1.5 seconds.
      repeats: rounds of time, in which the trainings take turns.
      failed: receives the trainings that failed, with the reason; the others are measured nevertheless.
    """
    with contextlib.ExitStack() as stack:
        left = {training: _Measuring(stack.enter_context(_started(training)), steps) for training in trainings}
        for phase in (_Measuring.start, _Measuring.measure_memory, *[_Measuring.measure_time] * repeats):
            for training, measuring in [*left.items()]:
                try:
                    phase(measuring)
                except MeasurementError as error:
                    failed[training] = str(error)
                    del left[training]
    return {training: measuring.measurement() for training, measuring in left.items()}


class _Measuring:
    """The phases of measuring one training process."""

    def __init__(self, process: Watched, steps: int):
        self._process = process
        self._steps = steps
        self._times: List[Tuple[float, float]] = []

    def start(self) -> None:
        """Waits until the network is built and its variables are initialized."""
        self._start = self._process.wait()

    def measure_memory(self) -> None:
        """Measures the peak of the second step alone: the first step also creates kernels."""
        self._first = self._process.until_mark('1')
        self._process.reset_peak()
        self._second = self._process.until_mark('1')
        before = time.monotonic()
        after = self._process.until_mark(f'1 {KEEP}').clock
        self._steps = max(self._steps, math.ceil(_SHORTEST_ROUND / (after - before)))

    def measure_time(self) -> None:
        """Measures the time of a round."""
        before = self._process.usage()
        after = self._process.until_mark(str(self._steps))
        self._times.append(((after.cpu - before.cpu) / self._steps, (after.clock - before.clock) / self._steps))

    def measurement(self) -> Measurement:
        """The results of all phases."""
        return Measurement(
            start_mb=self._start.resident / 1e6,
            held_mb=self._second.resident / 1e6,
            step_mb=(self._second.peak - self._second.resident) / 1e6,
            peak_mb=max(self._first.peak, self._second.peak) / 1e6,
            steps=self._steps,
            cpu_seconds=[cpu for cpu, _ in self._times],
            seconds=[seconds for _, seconds in self._times],
        )


def memory_of_iterations(
    training: Training, iterations: int, limit: Optional[int]
) -> Tuple[List[float], List[float], List[float]]:
    """The peak and the resident memory in MB, and the seconds, of each iteration of a training in a new process.

    Raises:
      OutOfMemoryError: the process needs more than `limit` bytes.
      MeasurementError: the process failed for another reason.
    """
    peaks, held, seconds = [], [], []
    with _started(training, limit) as process:
        process.wait()
        for _ in range(iterations):
            process.reset_peak()
            before = time.monotonic()
            usage = process.until_mark('1')
            peaks.append(usage.peak / 1e6)
            held.append(usage.resident / 1e6)
            seconds.append(usage.clock - before)
    return peaks, held, seconds


def peak_within(training: Training, limit_mb: float) -> Optional[float]:
    """The peak memory of a process that trains for two steps, in MB; None if it exceeds the limit.

    Raises:
      MeasurementError: the process failed for another reason.
    """
    try:
        with _started(training, int(limit_mb * 1e6)) as process:
            process.wait()
            return process.until_mark('2').peak / 1e6
    except OutOfMemoryError:
        return None


class Largest(NamedTuple):
    """The result of a search for the largest batch that fits a memory limit.

    Attributes:
      fits: the largest batch found to fit; 0 if one image does not fit.
      too_many: a batch that does not fit, at most a sixteenth larger.
      tries: peak in MB of each batch tried, in order; None for a batch that does not fit.
    """

    fits: int
    too_many: int
    tries: Dict[int, Optional[float]]


def largest_batch(peak_of: Callable[[int], Optional[float]], limit_mb: float, first: int) -> Largest:
    """Searches for the largest batch that fits, guided by a line through the peaks measured so far.

    Args:
      peak_of: measures the peak of a batch in MB; returns None if the batch does not fit.
      limit_mb: the memory limit, in MB.
      first: the batch to try first.
    """
    tries: Dict[int, Optional[float]] = {}
    fits, too_many, batch = 0, None, first
    while too_many is None or too_many - fits > max(1, fits // 16):
        tries[batch] = peak_of(batch)
        if tries[batch] is None:
            too_many = batch
        else:
            fits = batch
        batch = _next_batch([(size, peak) for size, peak in tries.items() if peak], limit_mb, fits, too_many)
    return Largest(fits, too_many, tries)


def _next_batch(fitting: Sequence[Tuple[int, float]], limit_mb: float, fits: int, too_many: Optional[int]) -> int:
    """The next batch to try.

    A line through two fitting batches predicts the largest batch. The next one is just below this prediction, else just
    above it, else a sixteenth larger than the largest that fits. Without a line it is twice the largest that fits, or
    halfway to the smallest that does not.
    """
    halfway = 2 * fits if too_many is None else (fits + too_many) // 2
    if len(fitting) < 2:
        return halfway
    # The smallest and the largest batch: between neighbours, the difference would be noise.
    (least, least_mb), *_, (most, most_mb) = sorted(fitting)
    if most_mb <= least_mb:
        return halfway
    predicted = int(least + (limit_mb - least_mb) * (most - least) / (most_mb - least_mb))
    margin = max(1, predicted // 40)
    for batch in (predicted - margin, predicted + margin, fits + max(1, fits // 16)):
        if batch > fits and (too_many is None or batch < too_many):
            return batch
    return halfway
