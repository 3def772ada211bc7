"""Torchvision's usual preprocessing of training, on PIL images or on tensors: see `meter`."""

import random
from typing import Any, Iterator

from benchmarks.peers import meter


class Forever:
    """Yields the numbers below `count` in random order, and again without end."""

    def __init__(self, count: int):
        self._count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from random.sample(range(self._count), self._count)


def transform(spec: meter.Spec, is_pil: bool) -> Any:
    """The transformations of images, which are PIL's or tensors."""
    import torch
    from torchvision import transforms

    steps = [
        transforms.RandomResizedCrop(tuple(spec['size']), scale=spec['area'], ratio=spec['aspect']),
        transforms.RandomHorizontalFlip(),
    ]
    if not spec['colour']:
        return transforms.Compose([*steps, transforms.PILToTensor()] if is_pil else steps)
    return transforms.Compose(
        [
            *steps,
            transforms.ColorJitter(brightness=spec['brightness'], saturation=spec['saturation']),
            transforms.ToTensor() if is_pil else transforms.ConvertImageDtype(torch.float32),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )


def batches_of(dataset: Any, spec: meter.Spec, **options: Any) -> Iterator[Any]:
    """The images that worker processes of PyTorch prepare."""
    import torch

    workers = {'num_workers': spec['workers'], 'multiprocessing_context': 'fork'}
    for images, _ in torch.utils.data.DataLoader(dataset, **workers, **options):
        yield images


def _read_tensor(path: str) -> Any:
    from torchvision import io

    return io.read_image(path, io.ImageReadMode.RGB)


def pipeline(spec: meter.Spec) -> meter.Pipeline:
    """The pipeline `torchvision_pil` or `torchvision_tensors`."""
    import PIL
    import torchvision
    from torchvision import datasets

    is_pil = spec['library'] == 'torchvision_pil'
    loader = datasets.folder.pil_loader if is_pil else _read_tensor
    dataset = datasets.ImageFolder(spec['files'], transform(spec, is_pil), loader=loader)
    batches = batches_of(dataset, spec, batch_size=spec['batch_size'], sampler=Forever(len(dataset)))
    pil = f', PIL {PIL.__version__}' if is_pil else ''
    return batches, f'torchvision {torchvision.__version__}{pil}'


if __name__ == '__main__':
    meter.answer_input(pipeline)
