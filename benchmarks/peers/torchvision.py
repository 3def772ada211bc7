"""Torchvision: its usual preprocessing of training, and training steps of its Inception v3; see `meter`."""

import random
from typing import Any, Iterator

from benchmarks.peers import meter

# As RMSProp's in the documented program. The learning rate does not change the work of a step; this one is low enough
# for random images.
_LEARNING_RATE, _DECAY, _MOMENTUM, _EPSILON = 1e-3, 0.9, 0.9, 1.0
# The weight of the auxiliary classifier's loss.
_AUXILIARY = 0.4


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


def training(spec: meter.Spec) -> meter.Training:
    """The program `torchvision`, with its auxiliary classifier."""
    import torch
    import torchvision

    model = torchvision.models.inception_v3(num_classes=spec['classes'], aux_logits=True, init_weights=False)
    model.train()
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), _LEARNING_RATE, alpha=_DECAY, momentum=_MOMENTUM, eps=_EPSILON)
    images = torch.rand([spec['batch_size'], 3, *spec['size']]) * 2 - 1
    labels = torch.randint(spec['classes'], [spec['batch_size']])

    def step() -> float:
        optimizer.zero_grad()
        found = model(images)
        loss = loss_of(found.logits, labels) + _AUXILIARY * loss_of(found.aux_logits, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    parameters = sum(each.numel() for each in model.parameters())
    return step, parameters, f'torchvision {torchvision.__version__}, PyTorch {torch.__version__}'


if __name__ == '__main__':
    meter.answer(pipeline, training)
