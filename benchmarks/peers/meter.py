"""Measures another library in a process that has little but this library; every script of a library begins it.

The argument of a script is a JSON file:

    library: the name of the pipeline or program, of those that the script has.
    batch_size: images of a batch; size: height and width of the prepared images.

For input pipelines also:

    files: folder with a folder of JPEG files per class; shards: the same images as tar shards.
    colour: whether brightness and saturation are distorted and the batch is float32 in [-1, 1]; else it is bytes.
    area, aspect: ranges of the random crops' share of the image and of their width / height.
    brightness, saturation: largest change of the brightness, of 1, and of the factor of the saturation.
    images: the least number to read after the warm-up; workers: threads or processes that prepare images.

For training steps:

    warm_up, steps: steps before the measurement, and measured ones; classes: outputs of the network.

A script prints a JSON object as the last line: see `measure` and `timed`. Python 3.7 must be able to run it.
"""

import glob
import json
import os
import resource
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

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
    for _ in range(warm_up):
        step()
    readings = [_reading()]
    for _ in range(steps):
        step()
        readings.append(_reading())
    return {
        name: [after[name] - before[name] for before, after in zip(readings, readings[1:])]
        for name in ('step_ms', 'cpu_ms')
    }


def _reading() -> Dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {'step_ms': 1000 * time.perf_counter(), 'cpu_ms': 1000 * (usage.ru_utime + usage.ru_stime)}


def specification() -> Spec:
    """The content of the file that the first argument names."""
    with open(sys.argv[1], encoding='utf-8') as file:
        return json.load(file)


def answer_input(pipeline: Callable[[Spec], Pipeline]) -> None:
    """Measures an input pipeline, and prints the result with `library`, its version."""
    spec = specification()
    batches, library = pipeline(spec)
    print(json.dumps({**measure(batches, spec), 'library': library}), flush=True)
    # Worker processes would otherwise prepare what nobody reads, until their parent has unloaded its libraries.
    os._exit(0)


def answer_steps(training: Callable[[Spec], Training]) -> None:
    """Measures training steps, and prints the result with `parameters`, the number of trained ones, and `library`."""
    spec = specification()
    step, parameters, library = training(spec)
    print(json.dumps({**timed(step, spec['warm_up'], spec['steps']), 'parameters': parameters, 'library': library}))
