"""Photographs prepared by PyTorch's libraries, for the scripts of torchvision, webdataset and FFCV."""

import io
import os
import random
from typing import Any, Callable, Iterator, Tuple

from benchmarks.peers.meter import Spec


class Forever:
    """Yields the numbers below `count` in random order, and again without end."""

    def __init__(self, count: int):
        self._count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from random.sample(range(self._count), self._count)


class Files:
    """A data set of PyTorch: prepared images of the JPEG files in a folder, with their labels."""

    def __init__(self, folder: str, prepare: Callable[[str], Any]):
        classes = sorted(os.listdir(folder))
        self.samples = [
            (os.path.join(folder, name, file), label)
            for label, name in enumerate(classes)
            for file in sorted(os.listdir(os.path.join(folder, name)))
        ]
        self._prepare = prepare

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tuple[Any, int]:
        path, label = self.samples[index]
        return self._prepare(path), label


def transform(spec: Spec, is_pil: bool) -> Any:
    """Torchvision's usual preprocessing of training."""
    from torchvision import transforms

    steps = [
        transforms.RandomResizedCrop(tuple(spec['size']), scale=spec['area'], ratio=spec['aspect']),
        transforms.RandomHorizontalFlip(),
    ]
    if not spec['colour']:
        return transforms.Compose([*steps, transforms.PILToTensor()] if is_pil else steps)
    import torch

    return transforms.Compose(
        [
            *steps,
            transforms.ColorJitter(brightness=spec['brightness'], saturation=spec['saturation']),
            transforms.ToTensor() if is_pil else transforms.ConvertImageDtype(torch.float32),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )


def read_pil(path: str) -> Any:
    """A file as a PIL image."""
    from PIL import Image

    with open(path, 'rb') as file:
        return Image.open(io.BytesIO(file.read())).convert('RGB')


def batches_of(dataset: Any, spec: Spec, **options: Any) -> Iterator[Any]:
    """The images that worker processes of PyTorch prepare."""
    import torch

    options = {'num_workers': spec['workers'], 'multiprocessing_context': 'fork', **options}
    for images, _ in torch.utils.data.DataLoader(dataset, **options):
        yield images
