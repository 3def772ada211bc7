"""Measures an input pipeline: a session reads images from it, in a process of its own.

The process has its own TensorFlow, threads and memory, so its CPU time and memory peak are the pipeline's alone. It
runs `tools.benchmarks.pipelines`, which reads a `Run` as JSON from standard input and prints a
`Measurement`.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Hashable, List, NamedTuple, Optional, Sequence, TypeVar

from compat.errors import DONE, RETRY, RetryableError
from console import processes
from console.screen import Screen
from inception_v3.config import Config

# Seconds after which a measurement counts as hung.
_TIMEOUT = 1800

STORAGE, PARSING, DECODING, PREPROCESSING, TRANSFER = 'storage', 'parsing', 'decoding', 'preprocessing', 'transfer'
PHASES = (STORAGE, PREPROCESSING, TRANSFER)
# The preprocessings that the naive pipeline has.
NAIVE = ('inception', 'vgg')

S = TypeVar('S', bound=Hashable)
R = TypeVar('R')


class MeasurementError(RetryableError):
    """A failed measurement."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A pipeline to measure."""

    is_naive: bool  # Whether it is the naive pipeline; else it is the program's `InputPipeline`.
    is_training: bool  # Whether it reads training records; else it repeats the validation records.
    # The last phase: storage, preprocessing or transfer; for the naive pipeline also parsing or decoding, the first
    # parts of preprocessing.
    until: str
    config: Config  # The configuration; its batch size is that of one call of the pipeline.
    images: int  # Minimum number of images to read after the warm-up.

    @property
    def batch_size(self) -> int:
        """Images in a batch."""
        return self.config.train_batch_size if self.is_training else self.config.eval_batch_size


class Measurement(NamedTuple):
    """The result of a measurement."""

    images: int  # Number of images read after the warm-up.
    cpu_ms: float  # CPU time of the process per image, in milliseconds: all threads, user and system.
    images_per_second: float  # Throughput.
    peak_mb: float  # Peak of the process's resident memory, in MB (10⁶ bytes), including TensorFlow itself.


# The CPU time of this process in seconds: all threads, user and system.
cpu_seconds = time.process_time


def peak_bytes() -> int:
    """The peak of this process's resident memory, in bytes."""
    # Not getrusage's ru_maxrss: a process inherits it from its parent.
    with open('/proc/self/status') as status:
        (line,) = (line for line in status if line.startswith('VmHWM:'))
    return int(line.split()[1]) << 10


def measure(runs: Sequence[Run], python: str = sys.executable) -> List[Measurement]:
    """Measures runs one by one in a new process of an interpreter; raises MeasurementError with the reason."""
    # The naive pipeline uses TensorFlow's default memory allocator; ours uses the one that the program sets.
    environment = {**os.environ, 'TF_CPU_ALLOCATOR_USE_BFC': '0'} if runs[0].is_naive else None
    command = [python, *processes.module('tools.benchmarks.pipelines')[1:]]
    text = json.dumps([dataclasses.asdict(run) for run in runs])
    return [Measurement(**fields) for fields in answer_of(command, text, environment, _TIMEOUT)]


def answer_of(
    command: Sequence[str], text: str, environment: Optional[Dict[str, str]] = None, timeout: Optional[float] = None
) -> Any:
    """Runs a process that measures, with a text as its input; returns the JSON in the last line that it prints.

    Raises MeasurementError with the reason if it fails, or takes longer than `timeout` seconds.
    """
    try:
        process = subprocess.run(command, input=text, env=environment, timeout=timeout, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        raise MeasurementError(f'ended: not done after {timeout} seconds')
    if process.returncode:
        raise MeasurementError(end_of(process.returncode, process.stderr))
    return json.loads(process.stdout.strip().splitlines()[-1])


def end_of(code: int, errors: str) -> str:
    """The reason why a process failed: the last line of its errors, or the signal that ended it."""
    # For example, the kernel kills a process when the memory of its container is exhausted.
    return f'ended by signal {-code}' if code < 0 else [f'exit code {code}', *errors.strip().splitlines()][-1]


def interleave(
    subjects: Sequence[S],
    repeats: int,
    measure_one: Callable[[S], R],
    screen: Screen,
    show: Callable[[Dict[S, List[R]], Dict[S, str]], None],
) -> int:
    """Measures all subjects once per round, so that other load on the machine affects all alike; returns the exit code.

    `str(subject)` names a subject. A subject for which `measure_one` raises MeasurementError is not measured again.
    `show` is called at the end, also after an interruption, with the measurements in the order of the rounds, and the
    reasons for failures.
    """
    measured: Dict[S, List[R]] = {}
    failed: Dict[S, str] = {}
    try:
        for repeat in range(repeats):
            for number, subject in enumerate(subjects):
                if subject in failed:
                    continue
                screen.update(f'round {repeat + 1} of {repeats}, {number + 1} of {len(subjects)}: {subject}')
                try:
                    measurement = measure_one(subject)
                except MeasurementError as error:
                    failed[subject] = str(error)
                else:
                    measured.setdefault(subject, []).append(measurement)
    finally:
        screen.clear()
        show(measured, failed)
    return RETRY if failed else DONE


def be_killed_first() -> None:
    """Asks the kernel to kill this process rather than another if the machine runs out of memory."""
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as score:
        score.write('1000')


def reason_of(error: Exception) -> str:
    """The message of an error on one line, without the operations that TensorFlow appends."""
    return ' '.join(getattr(error, 'message', str(error)).partition('[[')[0].split())
