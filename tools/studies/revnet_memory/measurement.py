"""Measures the memory and time of training steps from outside; each training is a process of its own.

The kernel counts the process's memory and CPU time. `tools.studies.revnet_memory.training` is the process.
"""

import contextlib
import json
import math
import os
import select
import subprocess
import tempfile
import time
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from console import processes
from tools.benchmarks.measurement import MeasurementError, end_of

# With these variables, every large tensor gets pages of its own from the system and returns them when it is freed, so
# resident memory is memory in use. Otherwise, TensorFlow's and the C library's allocators keep freed memory in pieces
# that may not fit the next tensor, and the C library raises its threshold for returning memory.
ENVIRONMENT = {'TF_CPU_ALLOCATOR_USE_BFC': '0', 'MALLOC_MMAP_THRESHOLD_': str(64 << 10)}

# The process prints MARK and waits for a line: the number of steps to the next mark, and optionally KEEP, which makes
# the C library keep freed memory from then on.
MARK, KEEP = b'mark\n', 'keep'
# Seconds: between checks of the memory, until a process counts as hung, and of the shortest round.
_POLL_INTERVAL, _TIMEOUT, _SHORTEST_ROUND = 0.02, 1800, 1.5

# Height and width of the images of the paper's networks, in pixels, and their classes with background.
PUBLISHED = {'revnet38': (32, 11), 'revnet104': (224, 1001)}
AS_PUBLISHED = 0


class OutOfMemoryError(MeasurementError):
    """A process exceeded its memory limit."""


class Training(NamedTuple):
    """A training of a RevNet with `units` blocks in each stage, on images of the paper's size.

    Activations are rebuilt in the backward pass (reversible), or kept (plain).
    """

    network: str
    units: int
    batch_size: int
    is_reversible: bool

    def __str__(self) -> str:
        units = f'{self.units} blocks a stage' if self.units else f'{self.network} as published'
        return f'{way(self.is_reversible)}, {units}, batches of {self.batch_size}'


def way(is_reversible: bool) -> str:
    """The name of a way to train."""
    return 'reversible' if is_reversible else 'plain'


class Usage(NamedTuple):
    """Resident memory of a process and its peak, in bytes; CPU time of its threads and time of the reading, in s."""

    resident: int
    peak: int
    cpu: float
    clock: float


class Watched:
    """A context manager for a process that stops at marks: it prints the line `mark`, and waits for a line of input.

    The process is killed above `limit` bytes of memory.
    """

    def __init__(self, command: Sequence[str], limit: Optional[int] = None):
        self._limit = limit
        # Closed with the process.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        pipe, environment = subprocess.PIPE, {**os.environ, **ENVIRONMENT}
        self._process = subprocess.Popen(
            command, bufsize=0, env=environment, stdin=pipe, stdout=pipe, stderr=self._errors
        )

    def __enter__(self) -> 'Watched':
        return self

    def __exit__(self, *unused: Any) -> None:
        # Killing is safe: the caller owns the process's folder.
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def until_mark(self, line: Optional[str] = None) -> Usage:
        """Sends a line, if the process waits for one, and waits for the next mark. Returns the usage until then.

        Raises MeasurementError if the process failed, or hangs; OutOfMemoryError if it exceeded the limit.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        if line is not None:
            # If the process has ended, the end of its output says so.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(f'{line}\n'.encode())
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            readable, _, _ = select.select([stdout], [], [], _POLL_INTERVAL)
            printed = stdout.readline() if readable else None
            if printed == b'':
                code = self._process.wait()
                self._errors.seek(0)
                raise MeasurementError(end_of(code, self._errors.read().decode(errors='replace')))
            # The kernel reports no memory for a process that is ending.
            peak = self._memory().get('VmHWM', 0)
            if self._limit is not None and peak > self._limit:
                raise OutOfMemoryError(f'more than {self._limit / 1e6:,.0f} MB: {peak / 1e6:,.0f} MB')
            if printed == MARK:
                return self.usage()
        raise MeasurementError(f'timed out after {_TIMEOUT} seconds')

    def reset_peak(self) -> None:
        """Resets the peak of the resident memory to its current size, as proc(5) describes."""
        with open(f'/proc/{self._process.pid}/clear_refs', 'w') as file:
            file.write('5')

    def usage(self) -> Usage:
        """The resources used so far."""
        clock, memory = time.monotonic(), self._memory()
        with open(f'/proc/{self._process.pid}/stat') as stat:
            # The program's name may contain spaces. After it, utime and stime are the fields 14 and 15 of proc(5).
            fields = stat.read().rpartition(')')[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return Usage(memory['VmRSS'], memory['VmHWM'], ticks / os.sysconf('SC_CLK_TCK'), clock)

    def _memory(self) -> Dict[str, int]:
        """Sizes in bytes, by their names in proc(5)."""
        with open(f'/proc/{self._process.pid}/status') as status:
            fields = dict(line.split(':', 1) for line in status)
        return {name: int(text.split()[0]) << 10 for name, text in fields.items() if name.startswith('Vm')}


@contextlib.contextmanager
def _started(training: Training, limit: Optional[int] = None) -> Iterator[Watched]:
    with tempfile.TemporaryDirectory() as model_dir:
        command = processes.module('tools.studies.revnet_memory.training', json.dumps([training, model_dir]))
        with Watched(command, limit) as process:
            yield process


def _memory_of(process: Watched) -> Dict[str, float]:
    """Memory in MB (10⁶ bytes).

    `held_mb`, resident between two steps: TensorFlow, its optimized graph and kernels, weights and momentum; `step_mb`,
    the peak of a step beyond `held_mb`: activations, gradients and work space.
    """
    # The first step also creates kernels.
    process.until_mark('1')
    process.reset_peak()
    second = process.until_mark('1')
    return {'held_mb': second.resident / 1e6, 'step_mb': (second.peak - second.resident) / 1e6}


def measure(trainings: Sequence[Training], repeats: int) -> List[Dict[str, Any]]:
    """Measures trainings, each in a new process. They start side by side; afterwards only one runs at a time.

    They take turns in `repeats` timed rounds of at least 1.5 seconds each. Returns the fields of each training
    with its memory, as `_memory_of` describes it, and `cpu_seconds`, the CPU time of a step over all threads, by
    round. Raises MeasurementError with the training that failed, and the reason.
    """
    measured: List[Dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        running = [(each, stack.enter_context(_started(each))) for each in trainings]
        steps = []
        for training, process in running:
            with _named(training):
                process.until_mark()
        for training, process in running:
            with _named(training):
                measured.append({**training._asdict(), **_memory_of(process), 'cpu_seconds': []})
                before = time.monotonic()
                after = process.until_mark(f'1 {KEEP}').clock
                steps.append(math.ceil(_SHORTEST_ROUND / (after - before)))
        for _ in range(repeats):
            for (training, process), row, count in zip(running, measured, steps):
                with _named(training):
                    before = process.usage().cpu
                    row['cpu_seconds'].append((process.until_mark(str(count)).cpu - before) / count)
    return measured


@contextlib.contextmanager
def _named(training: Training) -> Iterator[None]:
    """Adds the training to the reason of a failure."""
    try:
        yield
    except MeasurementError as error:
        raise MeasurementError(f'{training}: {error}')


def memory_of_iterations(training: Training, iterations: int, limit: Optional[int]) -> Dict[str, List[float]]:
    """Measures each iteration of a training in a new process; raises the errors of `Watched.until_mark`.

    Returns `peak_mb` and `held_mb`, the peak during an iteration and the resident memory at its end, in MB.
    """
    curve: Dict[str, List[float]] = {'peak_mb': [], 'held_mb': []}
    with _started(training, limit) as process:
        process.until_mark()
        for _ in range(iterations):
            process.reset_peak()
            usage = process.until_mark('1')
            curve['peak_mb'].append(usage.peak / 1e6)
            curve['held_mb'].append(usage.resident / 1e6)
    return curve
