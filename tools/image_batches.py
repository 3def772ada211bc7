"""Reads batches of image files on one thread per core, while a network runs."""

import collections
import concurrent.futures
import contextlib
import itertools
import sys
from typing import Any, Callable, Deque, Iterator, List, Sequence, Tuple

import numpy as np

from compat import tf
from console.processes import usable_cores
from console.screen import failure
from inception_v3.config import ConfigError
from inception_v3.run.memory import available_memory, in_words
from tools import image_files
from tools.datasets.intake import Intake
from tools.image_files import ImageFiles, UnreadableError, why_undecodable


def find(names: Sequence[str]) -> ImageFiles:
    """Finds the image files named by arguments, and reports files that are not images."""
    files = image_files.find(names)
    if files.skipped:
        report(f'skipped {len(files.skipped):,} files that are not images: {image_files.listed(files.skipped)}')
    return files


def batches(files: ImageFiles, size: int, prepare: Callable[[Intake, bytes], Any]) -> Iterator[List[Tuple[str, Any]]]:
    """Yields batches of (path, result of `prepare` or UnreadableError), in the order of the paths.

    `prepare` takes an `Intake` and the content of a file, runs on any thread, and may raise UnreadableError. At most
    three batches are in memory.
    """
    intake = Intake()

    def prepared(path: str) -> Tuple[str, Any]:
        try:
            if path in files.problems:
                raise UnreadableError(files.problems[path])
            return path, prepare(intake, image_files.read(path))
        except UnreadableError as error:
            return path, error

    with contextlib.closing(intake), concurrent.futures.ThreadPoolExecutor(usable_cores()) as threads:
        waiting: Deque[concurrent.futures.Future] = collections.deque()
        paths = iter(files.paths)
        try:
            for _ in range(0, len(files.paths), size):
                ahead = itertools.islice(paths, 3 * size - len(waiting))
                waiting.extend(threads.submit(prepared, path) for path in ahead)
                yield [waiting.popleft().result() for _ in range(min(size, len(waiting)))]
        finally:
            for future in waiting:
                future.cancel()


def run_decoding(session: tf.Session, image: tf.Tensor, encoded: tf.Tensor, content: bytes) -> np.ndarray:
    """Decodes a file, fed to the placeholder `encoded`, with a graph; raises UnreadableError if that fails."""
    try:
        return session.run(image, {encoded: content})
    except tf.errors.InvalidArgumentError as error:
        raise UnreadableError(why_undecodable(content, failure(error)))


def report(text: str) -> None:
    """Prints a line about files on standard error."""
    print(text, file=sys.stderr, flush=True)


def bytes_per_image(graph: tf.Graph) -> int:
    """The most bytes per image in the inputs and outputs of one operation, in a graph with an open batch size."""

    def size(tensor: tf.Tensor) -> int:
        batch, *others = tensor.shape.as_list() if tensor.shape.ndims else [0]
        return 0 if batch is not None or None in others else tf.TensorShape(others).num_elements() * tensor.dtype.size

    return max(sum(size(t) for t in {*o.inputs, *o.outputs}) for o in graph.get_operations())


def check_batch(flag: str, batch_size: int, per_image: int) -> None:
    """Checks that a batch, whose size a flag sets, fits in this machine's memory.

    Raises:
      ConfigError: the batch does not fit; the message names `flag` and the largest batch that fits.
    """
    available = available_memory()
    if available is not None and batch_size * per_image > available:
        raise ConfigError(
            f'--{flag}={batch_size}: needs an estimated {in_words(batch_size * per_image)} of memory; '
            f'{in_words(available)} are available. At most {max(1, available // per_image)} fit.'
        )
