"""Measures the input pipeline of a library, in a process that loads little else.

A script reads a list of `Task`s as JSON from standard input; its last line of output has the results of `measure` as
JSON.
"""

import collections
import concurrent.futures
import glob
import json
import math
import os
import pathlib
import random
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

# Batches before the measurement, to fill the buffers and start all threads and processes; and the fewest measured
# batches. With fewer, a batch that is partly prepared at the start or the end would distort the result.
WARM_UP_BATCHES, LEAST_BATCHES = 2, 4


class Task(NamedTuple):
    """Images to prepare for training."""

    files: str  # Folder with a folder of JPEG files for each class.
    shards: str  # Folder with the same images as tar shards.
    size: List[int]  # Height and width of a prepared image.
    area: List[float]  # Range of a random crop's share of the image.
    aspect: List[float]  # Range of the crop's width / height.
    # Largest shifts of brightness, Cb and Cr, for pixels in [0, 1]; None leaves the colours as they are.
    colour: Optional[List[float]]
    floats: bool  # Whether batches are float32 in [-1, 1]; else they are bytes.
    batch_size: int  # Images in a batch.
    images: int  # Least number of images to measure.
    workers: int  # Threads or processes that prepare images.

    def window(self, height: int, width: int) -> Tuple[int, int, int, int]:
        """Draws a crop: its top, left, height and width."""
        for _ in range(10):
            area = height * width * random.uniform(*self.area)
            aspect = math.exp(random.uniform(*map(math.log, self.aspect)))
            rows, columns = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
            if 0 < rows <= height and 0 < columns <= width:
                return random.randint(0, height - rows), random.randint(0, width - columns), rows, columns
        return 0, 0, height, width

    def shift(self) -> List[float]:
        """Draws shifts of brightness, Cb and Cr, and converts them to red, green and blue (JFIF, page 3)."""
        y, cb, cr = (random.uniform(-largest, largest) for largest in self.colour or [0, 0, 0])
        return [y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb]

    def paths(self) -> Iterator[str]:
        """Yields the files forever, in a new random order each time."""
        found = sorted(map(str, pathlib.Path(self.files).glob('*/*.jpg')))
        while True:
            yield from random.sample(found, len(found))

    def finish(self, image: Any) -> Any:
        """Flips an array of bytes [height, width, 3] at random, distorts its colour, and converts it."""
        import numpy as np

        image = image[:, ::-1] if random.random() < 0.5 else image
        shift = np.array(self.shift(), np.float32)
        if self.floats:
            floats = image * np.float32(2 / 255) + (2 * shift - 1)
            return np.clip(floats, -1, 1, out=floats) if self.colour else floats
        return np.clip(image + np.rint(255 * shift).astype(np.int16), 0, 255).astype(np.uint8) if self.colour else image

    def batches(self, prepare: Callable[[str], Any]) -> Iterator[Any]:
        """Yields batches of the results of `prepare`, which threads compute two batches ahead."""
        import numpy as np

        paths = self.paths()
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            ahead = collections.deque(pool.submit(prepare, next(paths)) for _ in range(2 * self.batch_size))
            while True:
                images = []
                for _ in range(self.batch_size):
                    images.append(ahead.popleft().result())
                    ahead.append(pool.submit(prepare, next(paths)))
                yield np.stack(images)


def cpu_seconds() -> float:
    """The CPU time of this process and its descendants: all threads, user and system."""
    stats: Dict[int, List[str]] = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path) as file:
                # The second field is the name, which may contain spaces.
                stats[int(path.split('/')[2])] = file.read().rpartition(')')[2].split()
        except OSError:
            continue  # The process has ended.
    family = [os.getpid()]
    for pid in family:
        family += [child for child, stat in stats.items() if int(stat[1]) == pid]
    # The times of each process, and of its children that have ended. For this process, ticks are too coarse.
    ticks = sum(int(ticks) for pid in family[1:] for ticks in stats[pid][11:15])
    return time.process_time() + ticks / os.sysconf('SC_CLK_TCK')


def measure(batches: Iterator[Any], batch_size: int, images: int, count: Callable[[Any], int] = len) -> Dict[str, Any]:
    """Reads batches, and measures at least `images` images after the warm-up; `count` counts the images of a batch.

    Returns `images`, the number of measured images; `cpu_ms`, CPU-ms per image; and `images_per_second`.
    """
    for _ in range(WARM_UP_BATCHES):
        next(batches)
    cpu, clock = cpu_seconds(), time.perf_counter()
    read = sum(count(next(batches)) for _ in range(max(LEAST_BATCHES, -(-images // batch_size))))
    cpu, clock = cpu_seconds() - cpu, time.perf_counter() - clock
    return {'images': read, 'cpu_ms': 1000 * cpu / read, 'images_per_second': read / clock}


def answer(pipeline: Callable[[Task], Iterator[Any]]) -> None:
    """Measures the pipeline of a script for each task, and prints the results."""
    results = []
    for task in (Task(**fields) for fields in json.load(sys.stdin)):
        results.append(measure(pipeline(task), task.batch_size, task.images))
    print(json.dumps(results), flush=True)
    # Otherwise workers would keep preparing batches until the libraries are unloaded.
    os._exit(0)
