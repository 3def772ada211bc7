"""Measures the memory and time of training steps, each training in a process of its own, from outside.

The kernel counts the process's memory and CPU time. `studies.revnet_memory.training` is the process.
"""

import contextlib
import json
import math
import os
import select
import subprocess
import tempfile
import time
from typing import IO, Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from benchmarks.measurement import MeasurementError, end_of
from console import processes
from inception_v3 import rules
from inception_v3.config import Config

# Every large tensor gets pages of its own from the system and returns them when it is freed, so that resident memory is
# memory in use. TensorFlow's and the C library's allocators keep freed memory in pieces that may not fit the next
# tensor; and the C library raises its threshold for returning memory unless it is set.
ENVIRONMENT = {'TF_CPU_ALLOCATOR_USE_BFC': '0', 'MALLOC_MMAP_THRESHOLD_': str(64 << 10)}

# The process prints MARK and waits for a line: the number of steps to the next mark, and optionally KEEP, which makes
# the C library keep freed memory from then on.
MARK, KEEP = b'mark\n', 'keep'
# Seconds: between checks of the memory, until a process counts as hung, and of the shortest round.
_POLL_INTERVAL, _TIMEOUT, _SHORTEST_ROUND = 0.02, 1800, 1.5

# The paper's networks: height and width of their images in pixels, and classes with background.
PUBLISHED = {'revnet38': (32, 11), 'revnet110': (32, 11), 'revnet56': (224, 1001), 'revnet104': (224, 1001)}
AS_PUBLISHED = 0


class OutOfMemoryError(MeasurementError):
    """A process exceeded its memory limit."""


class Training(NamedTuple):
    """A training of a RevNet, with `units` blocks in each stage, on images of `size` × `size` pixels.

    Activations are rebuilt in the backward pass (reversible), or kept (plain).
    """

    network: str
    units: int
    batch_size: int
    size: int
    is_reversible: bool

    def __str__(self) -> str:
        units = f'{self.units} blocks a stage' if self.units else f'{self.network} as published'
        return f'{way(self.is_reversible)}, {units}, batches of {self.batch_size}'


def way(is_reversible: bool) -> str:
    """The name of a way to train."""
    return 'reversible' if is_reversible else 'plain'


def config_of(training: Training, model_dir: str) -> Config:
    """The program's configuration for a training, with the paper's optimizer.

    Raises ConfigError if the images are too small.
    """
    config = Config(
        use_tpu=False,
        use_data='fake',
        network=training.network,
        rebuild_activations=training.is_reversible,
        train_batch_size=training.batch_size,
        height=training.size,
        width=training.size,
        num_classes=PUBLISHED[training.network][1],
        optimizer='momentum',
        moving_average=False,
        mode='train',
        model_dir=model_dir,
    )
    rules.check(config)
    return config


class Usage(NamedTuple):
    """Resident memory of a process and its peak, in bytes; CPU time of its threads and time of the reading, in s."""

    resident: int
    peak: int
    cpu: float
    clock: float


class Watched:
    """A context manager for a process that stops at marks: it prints the line `mark`, and waits for a line of input.

    It is ended above `limit` bytes of memory.
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
        command = processes.module('studies.revnet_memory.training', json.dumps([training, model_dir]))
        with Watched(command, limit) as process:
            yield process


def _phases(process: Watched, steps: int, repeats: int) -> Generator[None, None, Dict[str, Any]]:
    """Measures a process in phases: its start, its memory, and rounds of time; yields after each.

    Returns memory in MB (10⁶ bytes): `start_mb`, resident before the first step: TensorFlow, graph and weights;
    `held_mb`, resident between two steps: also TensorFlow's optimized graph and its kernels; `step_mb`, the peak of a
    step beyond `held_mb`: activations, gradients and work space; `peak_mb`, the peak of the whole process. `steps` in a
    round of time, and `cpu_seconds` of all threads and elapsed `seconds` of a step, an element per round.
    """
    start = process.until_mark()
    yield
    # The peak of the second step alone: the first step also creates kernels.
    first = process.until_mark('1')
    process.reset_peak()
    second = process.until_mark('1')
    before = time.monotonic()
    after = process.until_mark(f'1 {KEEP}').clock
    steps = max(steps, math.ceil(_SHORTEST_ROUND / (after - before)))
    cpu_seconds, seconds = [], []
    for _ in range(repeats):
        yield
        begun = process.usage()
        ended = process.until_mark(str(steps))
        cpu_seconds.append((ended.cpu - begun.cpu) / steps)
        seconds.append((ended.clock - begun.clock) / steps)
    return {
        'start_mb': start.resident / 1e6,
        'held_mb': second.resident / 1e6,
        'step_mb': (second.peak - second.resident) / 1e6,
        'peak_mb': max(first.peak, second.peak) / 1e6,
        'steps': steps,
        'cpu_seconds': cpu_seconds,
        'seconds': seconds,
    }


def measure(trainings: Sequence[Training], steps: int, repeats: int, failed: Dict[str, str]) -> List[Dict[str, Any]]:
    """Measures trainings, each in a new process. They start side by side; afterwards only one runs at a time.

    They take turns in `repeats` rounds of time, of `steps` steps or as many as fit into 1.5 seconds. `failed` receives
    the trainings that failed, with the reason. Returns the fields of each other training with its measurement, as
    `_phases` describes it.
    """
    measured: List[Dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        left = {each: _phases(stack.enter_context(_started(each)), steps, repeats) for each in trainings}
        while left:
            for training, phases in [*left.items()]:
                try:
                    next(phases)
                    continue
                except StopIteration as end:
                    measured.append({**training._asdict(), **end.value})
                except MeasurementError as error:
                    failed[str(training)] = str(error)
                del left[training]
    return measured


def memory_of_iterations(training: Training, iterations: int, limit: int) -> Dict[str, List[float]]:
    """Measures each iteration of a training in a new process; raises errors as `Watched.until_mark`.

    Returns `peak_mb` and `held_mb`, the peak during an iteration and the resident memory at its end, in MB, and
    `seconds`.
    """
    curve: Dict[str, List[float]] = {'peak_mb': [], 'held_mb': [], 'seconds': []}
    with _started(training, limit) as process:
        process.until_mark()
        for _ in range(iterations):
            process.reset_peak()
            before = time.monotonic()
            usage = process.until_mark('1')
            for name, value in zip(curve, (usage.peak / 1e6, usage.resident / 1e6, usage.clock - before)):
                curve[name].append(value)
    return curve


def largest_batch(peak_of: Callable[[int], Optional[float]], batch: int) -> Dict[str, Any]:
    """Searches for the largest batch that fits: doubles it until it does not, then halves the distance.

    `peak_of` measures the peak of a batch in MB; None if it does not fit. Returns `fits`, the largest batch found to
    fit, 0 if one image does not fit; `too_many`, a batch that does not fit, at most a sixteenth larger; `tries`, each
    batch tried, in order, with its peak, or None if it does not fit.
    """
    tries: List[Tuple[int, Optional[float]]] = []
    fits, too_many = 0, None
    while too_many is None or too_many - fits > max(1, fits // 16):
        peak = peak_of(batch)
        tries.append((batch, peak))
        if peak is None:
            too_many = batch
        else:
            fits = batch
        batch = 2 * fits if too_many is None else (fits + too_many) // 2
    return {'fits': fits, 'too_many': too_many, 'tries': tries}
