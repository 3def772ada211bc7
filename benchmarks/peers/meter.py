"""Measures another library in a process that has little but this library; every script of a library begins it.

Standard input is a JSON object:

    task: input or steps; library: the name of the pipeline, of those that the script has.
    batch_size: images of a batch; size: height and width of the prepared images.

For the task input also:

    files: folder with a folder of JPEG files per class; shards: the same images as tar shards.
    colour: whether brightness and saturation are distorted and the batch is float32 in [-1, 1]; else it is bytes.
    area, aspect: ranges of the random crops' share of the image and of their width / height.
    brightness, saturation: largest change of the brightness, of 1, and of the factor of the saturation.
    images: the least number to read after the warm-up; workers: threads or processes that prepare images.

For the task steps:

    warm_up, steps: steps before the measurement, and measured ones; classes: outputs of the network.

A script prints a JSON object as the last line: see `measure` and `timed`. Python 3.7 must be able to run it.
"""

import glob
import json
import os
import resource
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

# As in benchmarks.measurement: batches before the measurement starts, and the fewest that are measured.
_WARM_UP_BATCHES, _LEAST_BATCHES = 2, 4
# Batches after the measurement, after each of which the memory in use is read.
_MEMORY_BATCHES = 3

Spec = Dict[str, Any]
# Batches without end, and the libraries with their versions.
Pipeline = Tuple[Iterator[Any], str]
# A training step, the number of trained parameters, and the library with its version.
Training = Tuple[Callable[[], Any], int, str]


def family() -> List[int]:
    """The PIDs of this process and all its descendants."""
    parents: Dict[int, int] = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path) as file:
                parents[int(path.split('/')[2])] = int(_fields(file.read())[1])
        except OSError:
            continue  # It has ended.
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _fields(stat: str) -> List[str]:
    """The fields of a /proc/PID/stat from the third on; the second may contain spaces."""
    return stat.rpartition(')')[2].split()


def cpu_seconds(pids: List[int]) -> float:
    """The CPU time of processes and of their children that have ended: all threads, user and system."""
    total = 0
    for pid in pids:
        with open(f'/proc/{pid}/stat') as file:
            total += sum(int(ticks) for ticks in _fields(file.read())[11:15])
    return total / os.sysconf('SC_CLK_TCK')


def memory_bytes(pids: List[int]) -> int:
    """The memory of processes: pages that several of them share count once, and so do batches on their way."""
    total, shared = 0, {}
    for pid in pids:
        with open(f'/proc/{pid}/smaps_rollup') as file:
            sizes = {line.split()[0]: int(line.split()[1]) for line in file if line.rstrip().endswith(' kB')}
        total += (sizes['Pss:'] - sizes.get('Pss_Shmem:', 0)) << 10
        # PyTorch's workers hand over batches in shared memory, which no process maps while they wait in a queue.
        for descriptor in glob.glob(f'/proc/{pid}/fd/*'):
            try:
                if os.readlink(descriptor).startswith('/dev/shm/'):
                    status = os.stat(descriptor)
                    shared[status.st_ino] = status.st_blocks * 512
            except OSError:
                continue  # It has been closed.
    return total + sum(shared.values())


def _peak_bytes() -> int:
    with open('/proc/self/status') as status:
        (line,) = (line for line in status if line.startswith('VmHWM:'))
    return int(line.split()[1]) << 10


def measure(batches: Iterator[Any], spec: Spec) -> Dict[str, Any]:
    """Reads batches.

    Returns:
      `images`, `cpu_ms`, `images_per_second` and `peak_mb`, as in `benchmarks.measurement.Measurement`; and of the last
      batch its shape, dtype, least and greatest.
    """
    count = max(_LEAST_BATCHES, -(-spec['images'] // spec['batch_size']))
    for _ in range(_WARM_UP_BATCHES):
        next(batches)
    # The processes that prepare images exist now, and until the end.
    pids = family()
    cpu, clock = cpu_seconds(pids), time.perf_counter()
    images = sum(len(next(batches)) for _ in range(count))
    cpu, clock = cpu_seconds(pids) - cpu, time.perf_counter() - clock
    peak = _peak_bytes()
    for _ in range(_MEMORY_BATCHES):
        last = next(batches)
        peak = max(peak, memory_bytes(pids))
    return {
        'images': images,
        'cpu_ms': 1000 * cpu / images,
        'images_per_second': images / clock,
        'peak_mb': peak / 1e6,
        'shape': [*last.shape],
        'dtype': str(last.dtype).rpartition('.')[2],
        'least': float(last.min()),
        'greatest': float(last.max()),
    }


def timed(step: Callable[[], Any], warm_up: int, steps: int) -> Dict[str, Any]:
    """Takes steps.

    Returns:
      `step_ms` and `cpu_ms`: the milliseconds of each measured step, by the clock and of all threads' CPU time.
    """
    readings = []
    for _ in range(warm_up + steps):
        step()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        readings.append((1000 * time.perf_counter(), 1000 * (usage.ru_utime + usage.ru_stime)))
    readings = readings[warm_up - 1 :]
    times = [[after - before for before, after in zip(each, each[1:])] for each in zip(*readings)]
    return dict(zip(('step_ms', 'cpu_ms'), times))


def answer(
    pipeline: Optional[Callable[[Spec], Pipeline]] = None, training: Optional[Callable[[Spec], Training]] = None
) -> None:
    """Measures what standard input asks for, and prints the result with `library`, its version.

    Args:
      pipeline: the input pipeline of a specification.
      training: the training of a specification; the result has `parameters`, the number of trained ones, too.
    """
    spec = json.loads(sys.stdin.read())
    if spec['task'] == 'steps':
        assert training
        step, parameters, library = training(spec)
        result = {**timed(step, spec['warm_up'], spec['steps']), 'parameters': parameters, 'library': library}
    else:
        assert pipeline
        batches, library = pipeline(spec)
        result = {**measure(batches, spec), 'library': library}
    print(json.dumps(result), flush=True)
    # Worker processes would otherwise prepare what nobody reads, until their parent has unloaded its libraries.
    os._exit(0)
