"""Webdataset on tar shards, with torchvision's transforms and worker processes of PyTorch."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "pillow==13.0.0", "torch==2.15.0", "torchvision==0.29.2", "webdataset==1.0.2"]
# ///

import pathlib
from typing import Any, Iterator

from tools.benchmarks.peers import meter
from tools.benchmarks.peers.torchvision import batches_of, transform


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    import webdataset

    shards = sorted(map(str, pathlib.Path(task.shards).glob('train-*.tar')))
    dataset = webdataset.WebDataset(shards, resampled=True).shuffle(1000).decode('pil').to_tuple('jpg', 'cls')
    dataset = dataset.map_tuple(transform(task), int).batched(task.batch_size, partial=False)
    return batches_of(dataset, task, batch_size=None)


if __name__ == '__main__':
    meter.answer(pipeline)
