"""Grain reads, shuffles and batches in threads; simplejpeg and OpenCV prepare, because Grain itself decodes nothing."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["grain==0.2.18", "numpy==2.4.6", "opencv-python-headless==5.0.0.93", "simplejpeg==1.9.0"]
# ///

import pathlib
from typing import Any, Iterator

from tools.benchmarks.peers import meter, simplejpeg


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    import grain

    files = sorted(map(str, pathlib.Path(task.files).glob('*/*.jpg')))
    images = grain.MapDataset.source(files).shuffle(seed=1).repeat().map(simplejpeg.preparation(task))
    options = grain.ReadOptions(num_threads=task.workers, prefetch_buffer_size=2 * task.batch_size)
    return iter(images.to_iter_dataset(options).batch(task.batch_size))


if __name__ == '__main__':
    meter.answer(pipeline)
