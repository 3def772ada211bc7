"""A plain Python program: simplejpeg decodes whole images, OpenCV resizes, a pool of threads prepares."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "opencv-python-headless==5.0.0.93", "simplejpeg==1.9.0"]
# ///

import pathlib
from typing import Any, Callable, Iterator

from tools.benchmarks.peers import meter


def preparation(task: meter.Task) -> Callable[[str], Any]:
    """The function that prepares a file."""
    import cv2
    import simplejpeg

    # The pool's threads are enough.
    cv2.setNumThreads(1)

    def prepare(path: str) -> Any:
        decoded = simplejpeg.decode_jpeg(pathlib.Path(path).read_bytes())
        top, left, height, width = task.window(*decoded.shape[:2])
        cropped = decoded[top : top + height, left : left + width]
        return task.finish(cv2.resize(cropped, tuple(task.size[::-1]), interpolation=cv2.INTER_LINEAR))

    return prepare


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    return task.batches(preparation(task))


if __name__ == '__main__':
    meter.answer(pipeline)
