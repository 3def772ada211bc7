"""Torchvision: an ImageFolder, transforms v2, and PyTorch's worker processes."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "pillow==13.0.0", "torch==2.15.0", "torchvision==0.29.2"]
# ///

import random
from typing import Any, Iterator

from tools.benchmarks.peers import meter


class Forever:
    """Yields the numbers below `count` forever, in a new random order each time."""

    def __init__(self, count: int):
        self._count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from random.sample(range(self._count), self._count)


def transform(task: meter.Task) -> Any:
    """The transforms of a Pillow image."""
    import torch
    from torchvision.transforms import v2

    def distort(image: Any) -> Any:
        shift = torch.tensor(task.shift())[:, None, None]
        if task.floats:
            return (image + shift).clamp(0, 1)
        return (image + (255 * shift).round().to(torch.int16)).clamp(0, 255).to(torch.uint8)

    return v2.Compose(
        [
            v2.RandomResizedCrop(tuple(task.size), scale=tuple(task.area), ratio=tuple(task.aspect)),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            *([v2.ToDtype(torch.float32, scale=True)] if task.floats else []),
            *([distort] if task.colour else []),
            *([v2.Normalize([0.5] * 3, [0.5] * 3)] if task.floats else []),
        ]
    )


def batches_of(dataset: Any, task: meter.Task, **options: Any) -> Iterator[Any]:
    """Yields batches of images from worker processes."""
    import torch

    # One thread per process: the workers already use all cores.
    torch.set_num_threads(1)
    workers = {'num_workers': task.workers, 'multiprocessing_context': 'fork'}
    for images, _ in torch.utils.data.DataLoader(dataset, **workers, **options):
        yield images


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    from torchvision import datasets

    dataset = datasets.ImageFolder(task.files, transform(task))
    return batches_of(dataset, task, batch_size=task.batch_size, sampler=Forever(len(dataset)))


if __name__ == '__main__':
    meter.answer(pipeline)
