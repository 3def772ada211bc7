"""Pillow, in a pool of threads."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "pillow==13.0.0"]
# ///

from typing import Any, Iterator

from tools.benchmarks.peers import meter


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    import numpy as np
    from PIL import Image

    def prepare(path: str) -> Any:
        with Image.open(path) as image:
            top, left, height, width = task.window(image.height, image.width)
            box = (left, top, left + width, top + height)
            resized = image.convert('RGB').resize(tuple(task.size[::-1]), Image.Resampling.BILINEAR, box)
        return task.finish(np.asarray(resized))

    return task.batches(prepare)


if __name__ == '__main__':
    meter.answer(pipeline)
