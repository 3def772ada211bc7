"""SPDL's pipeline; simplejpeg and OpenCV prepare, because SPDL's own decoder needs shared libraries of FFmpeg."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "opencv-python-headless==5.0.0.93", "simplejpeg==1.9.0", "spdl==0.8.0"]
# ///

from typing import Any, Iterator

from tools.benchmarks.peers import meter, simplejpeg


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    import numpy as np
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(task.paths())
    builder.pipe(simplejpeg.preparation(task), concurrency=task.workers).aggregate(task.batch_size).pipe(np.stack)
    built = builder.add_sink(2).build(num_threads=task.workers)
    with built.auto_stop():
        yield from built


if __name__ == '__main__':
    meter.answer(pipeline)
