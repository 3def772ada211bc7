"""Measures an input pipeline of another library: the program of the environments without TensorFlow.

It knows nothing of the rest of this program, whose packages those environments lack. Its argument is a JSON file:

    pipeline: a name in PIPELINES; or `write_ffcv`, which writes the files of FFCV and measures nothing.
    files: folder with a folder of JPEG files per class; shards: the same images as tar shards; ffcv: the prefix of the
        paths of FFCV's files.
    colour: whether brightness and saturation are distorted and the batch is float32 in [-1, 1]; else it is bytes.
    size: height and width of the prepared images; area, aspect: ranges of the random crops' share of the image and of
        their width / height; brightness: largest change, of 1; saturation: largest change of the factor 1.
    batch_size, images: images of a batch, and the least number to read after the warm-up; workers: threads or processes
        that prepare images.

It prints, as the last line, a JSON object: images, cpu_ms, images_per_second and peak_mb as in
`benchmarks.measurement.Measurement`; library, with its version; and of the last batch its shape, dtype, least and
greatest.
"""

import glob
import io
import itertools
import json
import os
import random
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

# As in benchmarks.measurement: batches before the measurement starts, and the fewest that are measured.
_WARM_UP_BATCHES, _LEAST_BATCHES = 2, 4
# Batches after the measurement, after each of which the memory in use is read.
_MEMORY_BATCHES = 3
# The quality of the JPEG files that FFCV encodes anew: the middle of that of the photographs.
_FFCV_QUALITY = 92
_HALF = [127.5, 127.5, 127.5]

Spec = Dict[str, Any]
# Batches without end, and the libraries with their versions.
Pipeline = Tuple[Iterator[Any], str]


def family() -> List[int]:
    """The PIDs of this process and all its descendants."""
    parents: Dict[int, int] = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path) as file:
                parents[int(path.split('/')[2])] = int(_fields(file.read())[1])
        except OSError:
            continue  # It has ended.
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _fields(stat: str) -> List[str]:
    """The fields of a /proc/PID/stat from the third on; the second may contain spaces."""
    return stat.rpartition(')')[2].split()


def cpu_seconds(pids: List[int]) -> float:
    """The CPU time of processes and of their children that have ended: all threads, user and system."""
    total = 0
    for pid in pids:
        with open(f'/proc/{pid}/stat') as file:
            total += sum(int(ticks) for ticks in _fields(file.read())[11:15])
    return total / os.sysconf('SC_CLK_TCK')


def memory_bytes(pids: List[int]) -> int:
    """The memory of processes: pages that several of them share count once, and so do batches on their way."""
    total, shared = 0, {}
    for pid in pids:
        with open(f'/proc/{pid}/smaps_rollup') as file:
            sizes = {line.split()[0]: int(line.split()[1]) for line in file if line.rstrip().endswith(' kB')}
        total += (sizes['Pss:'] - sizes.get('Pss_Shmem:', 0)) << 10
        # PyTorch's workers hand over batches in shared memory, which no process maps while they wait in a queue.
        for descriptor in glob.glob(f'/proc/{pid}/fd/*'):
            try:
                if os.readlink(descriptor).startswith('/dev/shm/'):
                    status = os.stat(descriptor)
                    shared[status.st_ino] = status.st_blocks * 512
            except OSError:
                continue  # It has been closed.
    return total + sum(shared.values())


def _peak_bytes() -> int:
    with open('/proc/self/status') as status:
        (line,) = (line for line in status if line.startswith('VmHWM:'))
    return int(line.split()[1]) << 10


class _Forever:
    """Yields the numbers below `count` in random order, and again without end."""

    def __init__(self, count: int):
        self._count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from random.sample(range(self._count), self._count)


class _Files:
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


class _FilePreparation:
    """Reads a file as PIL image or tensor, and applies transformations. Worker processes receive copies."""

    def __init__(self, read: Callable[[str], Any], transform: Callable[[Any], Any]):
        self._read, self._transform = read, transform

    def __call__(self, path: str) -> Any:
        return self._transform(self._read(path))


def _transform(spec: Spec, is_pil: bool) -> Any:
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


def _read_pil(path: str) -> Any:
    from PIL import Image

    with open(path, 'rb') as file:
        return Image.open(io.BytesIO(file.read())).convert('RGB')


def _read_tensor(path: str) -> Any:
    from torchvision import io as torchvision_io

    return torchvision_io.read_image(path, torchvision_io.ImageReadMode.RGB)


def _torch_batches(dataset: Any, spec: Spec, **options: Any) -> Iterator[Any]:
    import torch

    for images, _ in torch.utils.data.DataLoader(dataset, num_workers=spec['workers'], **options):
        yield images


def _torchvision(spec: Spec, is_pil: bool) -> Pipeline:
    import PIL
    import torchvision

    read = _read_pil if is_pil else _read_tensor
    dataset = _Files(spec['files'], _FilePreparation(read, _transform(spec, is_pil)))
    batches = _torch_batches(dataset, spec, batch_size=spec['batch_size'], sampler=_Forever(len(dataset)))
    pil = f', PIL {PIL.__version__}' if is_pil else ''
    return batches, f'torchvision {torchvision.__version__}{pil}'


def _same(label: Any) -> Any:
    return label


def _webdataset(spec: Spec) -> Pipeline:
    import PIL
    import webdataset

    shards = sorted(glob.glob(os.path.join(spec['shards'], 'train-*.tar')))
    dataset = webdataset.WebDataset(shards, resampled=True).shuffle(1000).decode('pil').to_tuple('jpg', 'cls')
    dataset = dataset.map_tuple(_transform(spec, is_pil=True), _same).batched(spec['batch_size'], partial=False)
    return (
        _torch_batches(dataset, spec, batch_size=None),
        f'webdataset {webdataset.__version__}, PIL {PIL.__version__}',
    )


def _dali(spec: Spec, fast_decoding: bool) -> Pipeline:
    import numpy as np
    import nvidia.dali
    from nvidia.dali import fn, types

    @nvidia.dali.pipeline_def(batch_size=spec['batch_size'], num_threads=spec['workers'], device_id=None)
    def pipeline() -> Any:
        encoded, labels = fn.readers.file(file_root=spec['files'], random_shuffle=True)
        images = fn.decoders.image_random_crop(
            encoded,
            random_area=spec['area'],
            random_aspect_ratio=spec['aspect'],
            use_fast_idct=fast_decoding,
        )
        height, width = spec['size']
        images = fn.resize(images, resize_x=width, resize_y=height, interp_type=types.INTERP_LINEAR, antialias=False)
        mirror = fn.random.coin_flip()
        if not spec['colour']:
            return fn.flip(images, horizontal=mirror), labels
        brightness, saturation = (
            fn.random.uniform(range=[1 - spec[name], 1 + spec[name]]) for name in ('brightness', 'saturation')
        )
        images = fn.color_twist(images, brightness=brightness, saturation=saturation)
        return (
            fn.crop_mirror_normalize(
                images, mirror=mirror, mean=_HALF, std=_HALF, dtype=types.FLOAT, output_layout='HWC'
            ),
            labels,
        )

    def batches() -> Iterator[Any]:
        built = pipeline()
        built.build()
        while True:
            images, _ = built.run()
            yield np.asarray(images.as_tensor())

    return batches(), f'DALI {nvidia.dali.__version__}'


def _ffcv_path(spec: Spec, mode: str) -> str:
    return f'{spec["ffcv"]}-{mode}.beton'


def write_ffcv(spec: Spec) -> None:
    """Writes FFCV's files, of JPEG and of raw pixels. FFCV encodes the images anew."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    for mode in ('jpg', 'raw'):
        fields = {'image': RGBImageField(write_mode=mode, jpeg_quality=_FFCV_QUALITY), 'label': IntField()}
        unfinished = f'{_ffcv_path(spec, mode)}.unfinished'
        DatasetWriter(unfinished, fields, num_workers=1).from_indexed_dataset(_Files(spec['files'], _read_pil))
        os.replace(unfinished, _ffcv_path(spec, mode))


def _ffcv(spec: Spec, mode: str) -> Pipeline:
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
        _ffcv_path(spec, mode),
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


PIPELINES: Dict[str, Callable[[Spec], Pipeline]] = {
    'torchvision_pil': lambda spec: _torchvision(spec, is_pil=True),
    'torchvision_tensors': lambda spec: _torchvision(spec, is_pil=False),
    'webdataset': _webdataset,
    'dali': lambda spec: _dali(spec, fast_decoding=False),
    'dali_fast': lambda spec: _dali(spec, fast_decoding=True),
    'ffcv': lambda spec: _ffcv(spec, 'jpg'),
    'ffcv_raw': lambda spec: _ffcv(spec, 'raw'),
}


def measure(batches: Iterator[Any], spec: Spec) -> Dict[str, Any]:
    """Reads batches; the result is described above."""
    count = max(_LEAST_BATCHES, -(-spec['images'] // spec['batch_size']))
    for _ in range(_WARM_UP_BATCHES):
        next(batches)
    # The processes that prepare images exist now, and until the end.
    pids = family()
    cpu, clock = cpu_seconds(pids), time.perf_counter()
    images = sum(len(next(batches)) for _ in range(count))
    cpu, clock = cpu_seconds(pids) - cpu, time.perf_counter() - clock
    peak = _peak_bytes()
    for _ in range(_MEMORY_BATCHES):
        last = next(batches)
        peak = max(peak, memory_bytes(pids))
    return {
        'images': images,
        'cpu_ms': 1000 * cpu / images,
        'images_per_second': images / clock,
        'peak_mb': peak / 1e6,
        'shape': [*last.shape],
        'dtype': str(last.dtype).rpartition('.')[2],
        'least': float(last.min()),
        'greatest': float(last.max()),
    }


def main() -> None:
    """Does what the file of the first argument describes."""
    with open(sys.argv[1], encoding='utf-8') as file:
        spec = json.load(file)
    if spec['pipeline'] == 'write_ffcv':
        write_ffcv(spec)
        return
    batches, library = PIPELINES[spec['pipeline']](spec)
    print(json.dumps({**measure(batches, spec), 'library': library}), flush=True)
    # Worker processes would otherwise prepare what nobody reads, until their parent has unloaded its libraries.
    os._exit(0)


if __name__ == '__main__':
    main()
