"""Torchvision's usual preprocessing of training, on PIL images or on tensors: see `meter`."""

from typing import Any

from benchmarks.peers import meter
from benchmarks.peers.torch_images import Files, Forever, batches_of, read_pil, transform


class Preparation:
    """Reads a file as PIL image or tensor, and applies transformations. Worker processes receive copies."""

    def __init__(self, read: Any, transform: Any):
        self._read, self._transform = read, transform

    def __call__(self, path: str) -> Any:
        """The prepared image of a file."""
        return self._transform(self._read(path))


def _read_tensor(path: str) -> Any:
    from torchvision import io as torchvision_io

    return torchvision_io.read_image(path, torchvision_io.ImageReadMode.RGB)


def pipeline(spec: meter.Spec) -> meter.Pipeline:
    """The pipeline `torchvision_pil` or `torchvision_tensors`."""
    import PIL
    import torchvision

    is_pil = spec['library'] == 'torchvision_pil'
    dataset = Files(spec['files'], Preparation(read_pil if is_pil else _read_tensor, transform(spec, is_pil)))
    batches = batches_of(dataset, spec, batch_size=spec['batch_size'], sampler=Forever(len(dataset)))
    pil = f', PIL {PIL.__version__}' if is_pil else ''
    return batches, f'torchvision {torchvision.__version__}{pil}'


if __name__ == '__main__':
    meter.answer_input(pipeline)
