"""Webdataset, with torchvision's preprocessing, on tar shards: see `meter`."""

import glob
import os
from typing import Any

from benchmarks.peers import meter
from benchmarks.peers.torchvision import batches_of, transform


def _same(label: Any) -> Any:
    return label


def pipeline(spec: meter.Spec) -> meter.Pipeline:
    """The pipeline `webdataset`."""
    import PIL
    import webdataset

    shards = sorted(glob.glob(os.path.join(spec['shards'], 'train-*.tar')))
    dataset = webdataset.WebDataset(shards, resampled=True).shuffle(1000).decode('pil').to_tuple('jpg', 'cls')
    dataset = dataset.map_tuple(transform(spec, is_pil=True), _same).batched(spec['batch_size'], partial=False)
    return (
        batches_of(dataset, spec, batch_size=None),
        f'webdataset {webdataset.__version__}, PIL {PIL.__version__}',
    )


if __name__ == '__main__':
    meter.answer(pipeline)
