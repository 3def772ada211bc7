"""Measures an input pipeline: a session reads images from it, in a process of its own.

The process has its own TensorFlow, threads and memory, so that all of its CPU time and its memory peak are the
pipeline's. It runs this module, `python -m benchmarks.measurement`, which reads a `Run` as JSON from standard input and
prints a `Measurement` as JSON.
"""

import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from absl import app

from benchmarks.naive import NaivePipeline
from console import processes
from console.errors import DONE, RETRY, RetryableError
from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.metrics import PADDING_LABEL

# Batches before the measurement starts: they fill the shuffle buffer and start all threads.
_WARM_UP_BATCHES = 2
# With fewer batches, a batch that is partly prepared at the start or the end would distort the result.
_LEAST_BATCHES = 4
# Seconds after which a measurement counts as hung.
_TIMEOUT = 1800
# Seconds between checks of a measurement, and the fraction of the machine's memory that must stay available.
_POLL_INTERVAL = 0.2
_LEAST_AVAILABLE = 0.08

STORAGE, PARSING, DECODING, PREPROCESSING, TRANSFER = 'storage', 'parsing', 'decoding', 'preprocessing', 'transfer'
PHASES = (STORAGE, PREPROCESSING, TRANSFER)


class MeasurementError(RetryableError):
    """A failed measurement."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A pipeline to measure.

    Attributes:
      is_naive: whether it is the naive pipeline; else it is the program's `InputPipeline`.
      is_training: whether it reads training records; else it repeats the validation records.
      until: the last phase: storage, preprocessing or transfer; for the naive pipeline also parsing or decoding, the
        first parts of preprocessing.
      config: the configuration; its batch size is that of one call of the pipeline.
      images: minimum number of images to read after the warm-up.
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
    """The result of a measurement.

    Attributes:
      images: number of images read after the warm-up.
      cpu_ms: CPU time of the process per image, in milliseconds: all threads, user and system.
      images_per_second: throughput.
      peak_mb: peak of the process's resident memory, in MB (10⁶ bytes), including TensorFlow itself.
    """

    images: int
    cpu_ms: float
    images_per_second: float
    peak_mb: float


Measured = Dict[Run, List[Measurement]]
Failed = Dict[Run, str]


@tf.autograph.experimental.do_not_convert
def build(run: Run) -> tf.data.Dataset:
    """The pipeline of a run, repeated without end.

    The whole pipeline yields batches. A pipeline that ends after an earlier phase yields one of every `batch_size`
    elements of that phase. It prepares the other elements, too, and drops them inside the data set at no cost. So the
    differences between these pipelines are the costs of the phases.
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
        dataset = pipeline.storage()
        dataset = pipeline.preprocessing(dataset) if run.until == PREPROCESSING else dataset
        # The options include the number of threads.
        dataset = dataset.with_options(whole.options())
    return dataset.repeat().shard(run.batch_size, run.batch_size - 1)


def perform(run: Run) -> Measurement:
    """Measures in this process.

    Raises:
      DataError: the data set cannot be used.
    """
    batches = max(_LEAST_BATCHES, -(-run.images // run.batch_size))
    with tf.Graph().as_default(), tf.Session() as session:
        next_batch = tf.data.make_one_shot_iterator(build(run)).get_next()
        for _ in range(_WARM_UP_BATCHES):
            session.run(next_batch)
        cpu, clock = cpu_seconds(), time.perf_counter()
        images = sum(_images_in(session.run(next_batch), run) for _ in range(batches))
        cpu, clock = cpu_seconds() - cpu, time.perf_counter() - clock
    return Measurement(images, 1000 * cpu / images, images / clock, peak_bytes() / 1e6)


def _images_in(element: Any, run: Run) -> int:
    """The number of images in a batch, without the padding of evaluation's last batch."""
    if run.until != TRANSFER:
        return run.batch_size
    _, labels = element
    return int((labels != PADDING_LABEL).sum())


def cpu_seconds() -> float:
    """The CPU time of this process in seconds: all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """The peak of this process's resident memory, in bytes."""
    # Not getrusage's ru_maxrss: a process inherits it from its parent.
    with open('/proc/self/status') as status:
        (line,) = (line for line in status if line.startswith('VmHWM:'))
    return int(line.split()[1]) << 10


def measure(run: Run, python: str = sys.executable) -> Measurement:
    """Measures in a new process of an interpreter that has what this program needs.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    # The naive pipeline uses TensorFlow's default memory allocator; ours uses the one that the program sets.
    environment = {**os.environ, 'TF_CPU_ALLOCATOR_USE_BFC': '0'} if run.is_naive else None
    process = subprocess.Popen(
        [python, *processes.module('benchmarks.measurement')[1:]],
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
            # For example, the kernel kills a process when the memory of its container is exhausted.
            raise MeasurementError(f'ended by signal {-process.returncode}')
        raise MeasurementError([f'exit code {process.returncode}', *err.splitlines()][-1])
    return Measurement(**json.loads(out))


def _wait(process: 'subprocess.Popen[str]', text: str) -> Tuple[str, str]:
    """Sends text to a process and returns its output; fails if it hangs or uses too much memory."""
    unsent: Optional[str] = text
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        try:
            return process.communicate(unsent, timeout=_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            unsent = None
        if _available_memory() < _LEAST_AVAILABLE:
            raise MeasurementError(f'ended: less than {_LEAST_AVAILABLE:.0%} of the memory was still available')
    raise MeasurementError(f'ended: not done after {_TIMEOUT} seconds')


def _available_memory() -> float:
    """The fraction of this machine's memory that is available."""
    with open('/proc/meminfo') as meminfo:
        sizes = {name: int(size.split()[0]) for name, _, size in (line.partition(':') for line in meminfo)}
    return sizes['MemAvailable'] / sizes['MemTotal']


def interleave(
    runs: Sequence[Run], repeats: int, progress: Callable[[str], None], measured: Measured, failed: Failed
) -> None:
    """Measures all runs once per round, so that other load on the machine affects all runs alike.

    Args:
      runs: the runs to measure.
      repeats: number of rounds.
      progress: called with a line about the progress.
      measured: receives the measurements, in the order of the rounds; it keeps them after an interruption.
      failed: receives the runs that failed, with the reason; they are not measured again.
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


@contextlib.contextmanager
def busy_machine(count: int) -> Iterator[None]:
    """Context manager in which `count` other processes compute without end, each in one thread."""
    # They also end with this process, however it ends.
    code = 'import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))'
    others = [subprocess.Popen([sys.executable, '-c', code]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def be_killed_first() -> None:
    """Asks the kernel to kill this process rather than another if the machine runs out of memory."""
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as score:
        score.write('1000')


def reason_of(error: Exception) -> str:
    """The message of an error on one line, without the operations that TensorFlow appends."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    return ' '.join(message.partition('[[')[0].split())


def answer(measure: Callable[[str], Dict[str, Any]]) -> int:
    """Prints the JSON of the measurement that standard input describes; returns the exit code of the process.

    Args:
      measure: makes the measurement from a description in JSON.
    """
    be_killed_first()
    try:
        print(json.dumps(measure(sys.stdin.read())))
    except (app.UsageError, tf.errors.OpError) as error:
        print(reason_of(error), file=sys.stderr)
        return RETRY
    return DONE


if __name__ == '__main__':
    sys.exit(answer(lambda text: perform(Run.from_json(text))._asdict()))
