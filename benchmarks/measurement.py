"""One measurement of an input pipeline: images read from it by a session, in a process of its own.

A process of its own has its own TensorFlow, threads and memory, so that all of its CPU time and its peak of memory are
the pipeline's. The process is this module, `python -m benchmarks.measurement`: it takes a `Run` as JSON from its
standard input, and prints a `Measurement` as JSON.
"""

import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf
from absl import app

from benchmarks.naive import NaivePipeline
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.metrics import PADDING_LABEL

# Batches before the clock starts: they fill the shuffle buffer and start all threads.
_WARM_UP_BATCHES = 2
# Batches are handed over whole: with few of them, one more or less under way at the ends would count.
_LEAST_BATCHES = 4
# What is ended as hung, in seconds.
_TIMEOUT = 1800
# How often a measurement is looked after, in seconds, and the fraction of the memory that it has to leave.
_LOOK_INTERVAL = 0.2
_LEAST_AVAILABLE = 0.08

STORAGE, PARSING, DECODING, PREPROCESSING, TRANSFER = 'storage', 'parsing', 'decoding', 'preprocessing', 'transfer'
PHASES = (STORAGE, PREPROCESSING, TRANSFER)


class MeasurementError(Exception):
    """A measurement that failed, and why."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What is measured.

    Attributes:
      is_naive: the naive pipeline; else the program's own, `InputPipeline`.
      is_training: training records; else validation records, again and again.
      until: the last phase that is run: storage, preprocessing or transfer; of the naive pipeline also parsing or
        decoding, which preprocessing begins with.
      config: the configuration; its batch size is that of one call of the pipeline.
      images: images to read after the warm-up, at least.
    """

    is_naive: bool
    is_training: bool
    until: str
    config: Config
    images: int

    @property
    def batch_size(self) -> int:
        """Images in a batch."""
        return self.config.train_batch_size if self.is_training else self.config.eval_batch_size

    def to_json(self) -> str:
        """This run as JSON; `from_json` reads it back."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> 'Run':
        """The run that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, 'config': Config(**values['config'])})


class Measurement(NamedTuple):
    """What was measured.

    Attributes:
      images: images that were read, after the warm-up.
      cpu_ms: CPU time of the process per image, in milliseconds: all threads, user and system.
      images_per_second: by the clock.
      peak_mb: the peak of the process's resident memory, in MB (10⁶ bytes), TensorFlow itself included.
    """

    images: int
    cpu_ms: float
    images_per_second: float
    peak_mb: float


Measured = Dict[Run, List[Measurement]]
Failed = Dict[Run, str]


@tf.autograph.experimental.do_not_convert
def build(run: Run) -> tf.data.Dataset:
    """The pipeline of a run, without end.

    The whole pipeline gives its batches. What ends with an earlier phase gives one element of every `batch_size`, as
    that phase leaves it: the others are made and dropped inside the data set, where that costs nothing. So the phases'
    differences are what each adds.
    """
    if run.is_naive:
        naive = NaivePipeline(run.is_training, run.config)
        if run.until == TRANSFER:
            return naive(run.batch_size).repeat()
        later: Dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
            PARSING: naive.parsing,
            DECODING: naive.decoding,
            PREPROCESSING: naive.preprocessing,
        }
        dataset = naive.storage()
        dataset = later[run.until](dataset) if run.until in later else dataset
    else:
        pipeline = InputPipeline(run.is_training, run.config)
        whole = pipeline({'batch_size': run.batch_size})
        if run.until == TRANSFER:
            return whole.repeat()
        dataset = pipeline._storage()
        dataset = pipeline._preprocessing(dataset) if run.until == PREPROCESSING else dataset
        # Such as its threads.
        dataset = dataset.with_options(whole.options())
    return dataset.repeat().shard(run.batch_size, run.batch_size - 1)


def perform(run: Run) -> Measurement:
    """Measures in this process.

    Raises:
      DataError: the data set cannot be used.
    """
    batches = max(_LEAST_BATCHES, -(-run.images // run.batch_size))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        next_batch = tf.compat.v1.data.make_one_shot_iterator(build(run)).get_next()
        for _ in range(_WARM_UP_BATCHES):
            session.run(next_batch)
        cpu, clock = _cpu_seconds(), time.perf_counter()
        images = sum(_images_in(session.run(next_batch), run) for _ in range(batches))
        cpu, clock = _cpu_seconds() - cpu, time.perf_counter() - clock
    return Measurement(images, 1000 * cpu / images, images / clock, peak_bytes() / 1e6)


def _images_in(element: Any, run: Run) -> int:
    """How many images a batch holds; evaluation's last one is filled up with what is none."""
    if run.until != TRANSFER:
        return run.batch_size
    _, labels = element
    return int((labels != PADDING_LABEL).sum())


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """The most resident memory that this process has had."""
    # Not getrusage's ru_maxrss, which a process inherits from the one that started it.
    with open('/proc/self/status') as status:
        (line,) = (line for line in status if line.startswith('VmHWM:'))
    return int(line.split()[1]) << 10


def measure(run: Run) -> Measurement:
    """Measures in a new process.

    Raises:
      MeasurementError: it failed; the message says why.
    """
    # The naive pipeline has its memory from where TensorFlow has it by itself; ours, from where the program sets it to.
    environment = {**os.environ, 'TF_CPU_ALLOCATOR_USE_BFC': '0'} if run.is_naive else None
    process = subprocess.Popen(
        [sys.executable, '-m', 'benchmarks.measurement'],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    with process:
        try:
            out, err = _wait(process, run.to_json())
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        if process.returncode < 0:
            # Such as when a container's memory is used up.
            raise MeasurementError(f'ended by signal {-process.returncode}')
        raise MeasurementError([f'exit code {process.returncode}', *err.splitlines()][-1])
    return Measurement(**json.loads(out))


def _wait(process: 'subprocess.Popen[str]', text: str) -> Tuple[str, str]:
    """What a process says to a text, unless it hangs, or takes memory that others need."""
    given: Optional[str] = text
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        try:
            return process.communicate(given, timeout=_LOOK_INTERVAL)
        except subprocess.TimeoutExpired:
            given = None
        if _available_memory() < _LEAST_AVAILABLE:
            raise MeasurementError(f'ended: it had left less than {_LEAST_AVAILABLE:.0%} of the memory available')
    raise MeasurementError(f'ended: not done after {_TIMEOUT} seconds')


def _available_memory() -> float:
    """The fraction of this machine's memory that is there to be taken."""
    with open('/proc/meminfo') as meminfo:
        sizes = {name: int(size.split()[0]) for name, _, size in (line.partition(':') for line in meminfo)}
    return sizes['MemAvailable'] / sizes['MemTotal']


def interleave(
    runs: Sequence[Run], repeats: int, progress: Callable[[str], None], measured: Measured, failed: Failed
) -> None:
    """Measures all runs, one after the other, and that `repeats` times: what disturbs the machine disturbs them alike.

    Args:
      runs: what to measure.
      repeats: how often.
      progress: is told how far it is.
      measured: is filled with the measurements, in the order of the repeats, so that they are there when this is
        interrupted.
      failed: is filled with the runs that failed, which are not tried again, and why.
    """
    for repeat in range(repeats):
        for number, run in enumerate(runs):
            if run in failed:
                continue
            progress(f'round {repeat + 1} of {repeats}: measurement {number + 1} of {len(runs)}')
            try:
                measurement = measure(run)
            except MeasurementError as error:
                failed[run] = str(error)
            else:
                measured.setdefault(run, []).append(measurement)


def main() -> int:
    """Measures what standard input says, and prints the measurement."""
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as score:
        # If memory runs out, this process is to be ended, and no other.
        score.write('1000')
    try:
        print(json.dumps(perform(Run.from_json(sys.stdin.read()))._asdict()))
    except (app.UsageError, tf.errors.OpError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        # Without the operations that TensorFlow names after it, and on one line.
        print(' '.join(message.partition('[[')[0].split()), file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
