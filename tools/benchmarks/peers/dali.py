"""NVIDIA DALI on the CPU."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "nvidia-dali-cuda120==2.4.0"]
# ///

from typing import Any, Iterator

from tools.benchmarks.peers import meter


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    import numpy as np
    import nvidia.dali
    from nvidia.dali import fn, math, types

    @nvidia.dali.pipeline_def(batch_size=task.batch_size, num_threads=task.workers, device_id=None)
    def graph() -> Any:
        encoded, _ = fn.readers.file(file_root=task.files, random_shuffle=True)
        images = fn.decoders.image_random_crop(encoded, random_area=task.area, random_aspect_ratio=task.aspect)
        height, width = task.size
        images = fn.resize(images, resize_x=width, resize_y=height, interp_type=types.INTERP_LINEAR, antialias=False)
        # Flips, subtracts the mean and divides, in one step.
        center, scale = (127.5, 127.5) if task.floats else (0.0, 1.0)
        mean: Any = [center] * 3
        if task.colour:
            y, cb, cr = (fn.random.uniform(range=[-255 * largest, 255 * largest]) for largest in task.colour)
            shifts = y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb
            mean = fn.stack(*(center - shift for shift in shifts))
        kind = types.FLOAT if task.floats else types.UINT8
        images = fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), mean=mean, std=[scale] * 3, dtype=kind, output_layout='HWC'
        )
        return math.clamp(images, -1, 1) if task.colour and task.floats else images

    built = graph()
    built.build()
    while True:
        (images,) = built.run()
        yield np.asarray(images.as_tensor())


if __name__ == '__main__':
    meter.answer(pipeline)
