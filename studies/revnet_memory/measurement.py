"""What a training step takes: training in a process of its own, seen from outside.

The process is this module, `python -m studies.revnet_memory.measurement`: the program's own training, on made-up
images, of a RevNet with as many blocks as are wanted. It stops at marks, where it prints a line and waits for one. What
it has taken until then, the kernel tells; nothing is of its own counting.
"""

import contextlib
import ctypes
import functools
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from benchmarks.measurement import MeasurementError
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks import revnet
from inception_v3.networks.registry import NETWORKS


class Published(NamedTuple):
    """A network of the paper.

    Attributes:
      architecture: its table.
      size: height and width of the images that it is for, in pixels.
      num_classes: classes of those, background included.
    """

    architecture: revnet.Architecture
    size: int
    num_classes: int


PUBLISHED = {
    'revnet38': Published(revnet.REVNET_38, 32, 11),
    'revnet110': Published(revnet.REVNET_110, 32, 11),
    'revnet56': Published(revnet.REVNET_56, 224, 1001),
    'revnet104': Published(revnet.REVNET_104, 224, 1001),
}

# For memory: every tensor has its own from the system, and it goes back there when the tensor is no longer needed, so
# that what is resident is what is in use. TensorFlow's own allocator and the C library's keep what was freed, in pieces
# that may not fit the next tensor; and the library raises the size from which on it gives back, unless it is set.
ENVIRONMENT = {'TF_CPU_ALLOCATOR_USE_BFC': '0', 'MALLOC_MMAP_THRESHOLD_': str(64 << 10)}
# For time: what was freed is kept for the next tensor, as the program has it by default, with TensorFlow's allocator.
# Pages that are fetched from the system each time would be half as much again. Parameters of mallopt(3), and values.
_KEEP = 'keep'
_M_MMAP_MAX, _M_TRIM_THRESHOLD = (-4, 0), (-1, 2**31 - 1)

_MARK = b'mark\n'
# A round lasts so long, at least.
_LEAST_SECONDS = 1.5
# How often a process is looked after, in seconds, and when it is ended as hung.
_LOOK_INTERVAL = 0.02
_TIMEOUT = 1800
# Writing it forgets the peak of the resident memory until then. See proc(5).
_FORGET_PEAK = '5'


class OutOfMemoryError(MeasurementError):
    """A process took more memory than it was to have."""


class Training(NamedTuple):
    """What is measured.

    Attributes:
      network: the name of a RevNet.
      units: blocks in each of its stages.
      batch_size: images in a step.
      size: height and width of the images, in pixels.
      is_reversible: rebuild the activations; else keep them.
    """

    network: str
    units: int
    batch_size: int
    size: int
    is_reversible: bool

    def __str__(self) -> str:
        way = 'reversible' if self.is_reversible else 'plain'
        return f'{way}, {self.units} blocks a stage, batches of {self.batch_size}'


class Seen(NamedTuple):
    """What the kernel tells of a process.

    Attributes:
      resident: bytes of its memory that are in use.
      peak: the most that they were.
      cpu: seconds of CPU time, of all threads, user and system, to a hundredth.
      clock: the time, in seconds.
    """

    resident: int
    peak: int
    cpu: float
    clock: float


class Measurement(NamedTuple):
    """What was measured; memory in MB (10⁶ bytes).

    Attributes:
      start_mb: resident before the first step: TensorFlow, the graph, the weights.
      held_mb: resident between two steps: besides, what TensorFlow has made of the graph.
      step_mb: what a step takes beyond that, at its peak: activations, gradients, and room to work in.
      peak_mb: the peak of the process as a whole.
      steps: of a round whose time was measured.
      cpu_seconds: CPU time of a step, of all threads; an element per round.
      seconds: a step by the clock; an element per round.
    """

    start_mb: float
    held_mb: float
    step_mb: float
    peak_mb: float
    steps: int
    cpu_seconds: List[float]
    seconds: List[float]


# The process that trains.


def config_of(training: Training, model_dir: str) -> Config:
    """The program's configuration.

    Raises:
      ConfigError: there is none such.
    """
    return Config(
        use_tpu=False,
        use_data='fake',
        network=training.network,
        rebuild_activations=training.is_reversible,
        train_batch_size=training.batch_size,
        height=training.size,
        width=training.size,
        num_classes=PUBLISHED[training.network].num_classes,
        # As the paper trains.
        optimizer='momentum',
        moving_average=False,
        mode='train',
        model_dir=model_dir,
    )


def train(training: Training, model_dir: str) -> None:
    """Trains on made-up images for as long as standard input has it; see `_Marks`."""
    architecture = PUBLISHED[training.network].architecture
    architecture = architecture._replace(units=(training.units,) * len(architecture.units))
    build = functools.partial(revnet.revnet, architecture)
    NETWORKS[training.network] = NETWORKS[training.network]._replace(build=build)
    config = config_of(training, model_dir)
    # No checkpoints: what they take is no step's.
    estimator = make_estimator(config, writes=False)
    estimator.train(InputPipeline(True, config), hooks=[_Marks()], max_steps=config.train_steps)


class _Marks(tf.estimator.SessionRunHook):
    """Stops before the first step, and again after as many steps as it is told there: `_stop`."""

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        self._left = _stop()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._left -= 1
        if not self._left:
            self._left = _stop()


def _stop() -> int:
    """Waits at a mark; the number of steps to the next. Ends the process if there is no one any more to say it."""
    sys.stdout.buffer.write(_MARK)
    sys.stdout.flush()
    words = sys.stdin.readline().split()
    if not words:
        sys.exit()
    if _KEEP in words:
        for parameter in (_M_MMAP_MAX, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(*parameter)
    return int(words[0])


# Who watches it.


class Watched:
    """A process that stops at marks, while it is open: it prints a line, `mark`, and waits for one.

    Args:
      command: what to run.
      limit: bytes of memory from which on it is ended.

    Raises:
      MeasurementError: it failed, or has hung.
      OutOfMemoryError: it has gone beyond the limit.
    """

    def __init__(self, command: Sequence[str], limit: Optional[int] = None):
        self._command = command
        self._limit = limit

    def __enter__(self) -> 'Watched':
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **ENVIRONMENT},
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        return self

    def __exit__(self, *unused: Any) -> None:
        # It has nothing to tidy up: its folder is not its own.
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def go_on(self, line: str) -> None:
        """Gives it the line that it waits for."""
        assert self._process.stdin
        # What has ended meanwhile says why at the next mark.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f'{line}\n'.encode())

    def wait(self) -> Seen:
        """Waits until it stops."""
        stdout = self._process.stdout
        assert stdout
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            readable, _, _ = select.select([stdout], [], [], _LOOK_INTERVAL)
            if not readable:
                self._check_memory()
                continue
            printed = stdout.readline()
            if printed == _MARK:
                self._check_memory()
                return self.seen()
            if not printed:
                raise MeasurementError(self._reason())
        raise MeasurementError(f'ended: not done after {_TIMEOUT} seconds')

    def until_mark(self, line: str) -> Seen:
        """Has it go on, and waits until it stops."""
        self.go_on(line)
        return self.wait()

    def forget_peak(self) -> None:
        """Has the kernel take the peak of the resident memory anew."""
        with open(f'/proc/{self._process.pid}/clear_refs', 'w') as file:
            file.write(_FORGET_PEAK)

    def _check_memory(self) -> None:
        # What is ending has no memory any more.
        peak = self._memory().get('VmHWM', 0)
        if self._limit is not None and peak > self._limit:
            raise OutOfMemoryError(f'more than {self._limit / 1e6:,.0f} MB: {peak / 1e6:,.0f} MB')

    def _memory(self) -> Dict[str, int]:
        """Bytes, by the names that proc(5) has for them."""
        with open(f'/proc/{self._process.pid}/status') as status:
            fields = dict(line.split(':', 1) for line in status)
        return {name: int(text.split()[0]) << 10 for name, text in fields.items() if name.startswith('Vm')}

    def seen(self) -> Seen:
        """What it has taken until now."""
        clock, memory = time.monotonic(), self._memory()
        with open(f'/proc/{self._process.pid}/stat') as stat:
            # After the name of the program, which may hold spaces: utime and stime are fields 14 and 15.
            fields = stat.read().rpartition(')')[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return Seen(memory['VmRSS'], memory['VmHWM'], ticks / os.sysconf('SC_CLK_TCK'), clock)

    def _reason(self) -> str:
        code = self._process.wait()
        if code < 0:
            # Such as when a container's memory is used up.
            return f'ended by signal {-code}'
        self._errors.seek(0)
        return [f'exit code {code}', *self._errors.read().decode(errors='replace').splitlines()][-1]


@contextlib.contextmanager
def _started(training: Training, limit: Optional[int] = None) -> Iterator[Watched]:
    """A process that begins to train."""
    with tempfile.TemporaryDirectory() as model_dir, Watched([sys.executable, '-m', __name__], limit) as process:
        process.go_on(json.dumps([training, model_dir]))
        yield process


def measure(
    trainings: Sequence[Training], steps: int, repeats: int, failed: Dict[Training, str]
) -> Dict[Training, Measurement]:
    """Measures trainings, each in a new process. These get ready beside each other; then only one runs at a time.

    Args:
      trainings: what.
      steps: of a round, at least; as many more as a second and a half have room for.
      repeats: rounds of time, in which the trainings take turns.
      failed: is filled with what failed, and why; the others are measured all the same.
    """
    with contextlib.ExitStack() as stack:
        left = {training: _Measuring(stack.enter_context(_started(training)), steps) for training in trainings}
        for phase in (_Measuring.get_ready, _Measuring.take_memory, *[_Measuring.take_time] * repeats):
            for training, measuring in [*left.items()]:
                try:
                    phase(measuring)
                except MeasurementError as error:
                    failed[training] = str(error)
                    del left[training]
    return {training: measuring.measurement() for training, measuring in left.items()}


class _Measuring:
    """The measuring of a process that trains, phase by phase."""

    def __init__(self, process: Watched, steps: int):
        self._process = process
        self._steps = steps
        self._times: List[Tuple[float, float]] = []

    def get_ready(self) -> None:
        """Waits for the network, whose variables have their values then."""
        self._start = self._process.wait()

    def take_memory(self) -> None:
        """Takes the peak of the second step, by itself: the first makes the kernels."""
        self._first = self._process.until_mark('1')
        self._process.forget_peak()
        self._second = self._process.until_mark('1')
        before = time.monotonic()
        after = self._process.until_mark(f'1 {_KEEP}').clock
        self._steps = max(self._steps, math.ceil(_LEAST_SECONDS / (after - before)))

    def take_time(self) -> None:
        """Takes the time of a round."""
        before = self._process.seen()
        after = self._process.until_mark(str(self._steps))
        self._times.append(((after.cpu - before.cpu) / self._steps, (after.clock - before.clock) / self._steps))

    def measurement(self) -> Measurement:
        """What was measured."""
        return Measurement(
            start_mb=self._start.resident / 1e6,
            held_mb=self._second.resident / 1e6,
            step_mb=(self._second.peak - self._second.resident) / 1e6,
            peak_mb=max(self._first.peak, self._second.peak) / 1e6,
            steps=self._steps,
            cpu_seconds=[cpu for cpu, _ in self._times],
            seconds=[seconds for _, seconds in self._times],
        )


def peak_within(training: Training, limit_mb: float) -> Optional[float]:
    """The peak of the memory of a process that trains for two steps, in MB; None if it needs more than a limit.

    Raises:
      MeasurementError: it failed for another reason.
    """
    try:
        with _started(training, int(limit_mb * 1e6)) as process:
            process.wait()
            return process.until_mark('2').peak / 1e6
    except OutOfMemoryError:
        return None


class Largest(NamedTuple):
    """The search for the largest batch that fits.

    Attributes:
      fits: it does; 0 if not even one image does.
      too_many: a batch that does not, one sixteenth larger at most.
      tries: peaks in MB by the batches that were tried, in that order; None for what did not fit.
    """

    fits: int
    too_many: int
    tries: Dict[int, Optional[float]]


def largest_batch(peak_of: Callable[[int], Optional[float]], limit_mb: float, first: int) -> Largest:
    """Finds the largest batch that fits by trying; where to, a line through two tries tells.

    Args:
      peak_of: tries a batch: the peak in MB, or None if it does not fit.
      limit_mb: what has to be fitted.
      first: the batch to begin with.
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
    """Where to try next: just below what a line predicts, just above it, then beyond; without a line, twice or half."""
    halfway = 2 * fits if too_many is None else (fits + too_many) // 2
    if len(fitting) < 2:
        return halfway
    # Of neighbours, the difference is chance.
    (least, least_mb), *_, (most, most_mb) = sorted(fitting)
    if most_mb <= least_mb:
        return halfway
    predicted = int(least + (limit_mb - least_mb) * (most - least) / (most_mb - least_mb))
    margin = max(1, predicted // 40)
    for batch in (predicted - margin, predicted + margin, fits + max(1, fits // 16)):
        if batch > fits and (too_many is None or batch < too_many):
            return batch
    return halfway


def main() -> None:
    """Trains what standard input says."""
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as score:
        # If memory runs out, this process is to be ended, and no other.
        score.write('1000')
    training, model_dir = json.loads(sys.stdin.readline())
    try:
        train(Training(*training), model_dir)
    except tf.errors.OpError as error:
        # Without the operations that TensorFlow names after it, and on one line.
        sys.exit(' '.join(error.message.partition('[[')[0].split()))


if __name__ == '__main__':
    main()
