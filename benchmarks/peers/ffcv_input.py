"""FFCV on files of JPEG or of raw pixels, which it writes first, because it encodes the images anew: see `meter`."""

import itertools
import os

from benchmarks.peers import meter
from benchmarks.peers.torch_images import Files, read_pil

# The quality of the JPEG files that FFCV encodes anew: the middle of that of the photographs.
_QUALITY = 92
_HALF = [127.5, 127.5, 127.5]


def _file(spec: meter.Spec) -> str:
    """The file of the pipeline `ffcv` or `ffcv_raw`, written unless it exists."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    mode = 'raw' if spec['library'] == 'ffcv_raw' else 'jpg'
    path = f'{spec["ffcv"]}-{mode}.beton'
    if not os.path.exists(path):
        fields = {'image': RGBImageField(write_mode=mode, jpeg_quality=_QUALITY), 'label': IntField()}
        DatasetWriter(f'{path}.unfinished', fields, num_workers=1).from_indexed_dataset(Files(spec['files'], read_pil))
        os.replace(f'{path}.unfinished', path)
    return path


def pipeline(spec: meter.Spec) -> meter.Pipeline:
    """The pipeline `ffcv` or `ffcv_raw`."""
    import ffcv
    import numpy as np
    from ffcv import transforms
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder

    image = [
        RandomResizedCropRGBImageDecoder(*(tuple(spec[name]) for name in ('size', 'area', 'aspect'))),
        transforms.RandomHorizontalFlip(),
    ]
    if spec['colour']:
        image += [
            transforms.RandomBrightness(spec['brightness']),
            transforms.RandomSaturation(spec['saturation']),
            transforms.NormalizeImage(np.array(_HALF), np.array(_HALF), np.float32),
        ]
    loader = ffcv.Loader(
        _file(spec),
        batch_size=spec['batch_size'],
        num_workers=spec['workers'],
        order=ffcv.loader.OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={
            'image': [*image, transforms.ToTensor(), transforms.ToTorchImage()],
            'label': [IntDecoder(), transforms.ToTensor()],
        },
    )
    batches = (images for _ in itertools.count() for images, _ in loader)
    return batches, f'FFCV {getattr(ffcv, "__version__", "")}'.rstrip()


if __name__ == '__main__':
    meter.answer_input(pipeline)
