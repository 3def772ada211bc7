"""Small archives in the layout of ImageNet's, with pieces of real photographs as images, and their conversion."""

import io
import pathlib
import subprocess
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import PIL.Image
import pytest
import scipy.io
import skimage.data

from data import records
from tests.data import written_records
from tests.data.written_records import Stored
from tests.support.images import saved
from tests.support.tar_files import tar_of
from tools.datasets.imagenet import pipeline

PHOTOS = [skimage.data.chelsea(), skimage.data.astronaut(), skimage.data.coffee(), skimage.data.rocket()]
# In the order of ILSVRC2012_ID, from 1, which differs from that of the synsets. The last one has no images, like the
# real ones above 1,000.
SYNSETS = ['n02123045', 'n01440764', 'n04266014', 'n07920052', 'n00001740']
WORDS = ['tabby, tabby cat', 'tench, Tinca tinca', 'space shuttle', 'espresso', 'entity']
CLASSES = SYNSETS[:4]
LABELS = {'n01440764': 1, 'n02123045': 2, 'n04266014': 3, 'n07920052': 4}
TEXTS = dict(zip(SYNSETS, WORDS))
# The archives, by the flags that name them.
TRAIN, VALIDATION, KIT = 'ILSVRC2012_img_train.tar', 'ILSVRC2012_img_val.tar', 'ILSVRC2012_devkit_t12.tar.gz'
PARTS = {'train': TRAIN, 'validation': VALIDATION, 'validation_labels': KIT}


def piece(number: int, height: int = 60, width: int = 80) -> np.ndarray:
    """A piece of a photograph, uint8 [height, width, 3], different for every number."""
    photo = PHOTOS[number % len(PHOTOS)]
    top = 7 * number % (photo.shape[0] - height)
    left = 13 * number % (photo.shape[1] - width)
    return np.ascontiguousarray(photo[top : top + height, left : left + width])


def encode(pixels: np.ndarray, image_format: str = 'JPEG', mode: str = 'RGB') -> bytes:
    options = {'quality': 90} if image_format == 'JPEG' else {}
    return saved(PIL.Image.fromarray(pixels).convert(mode), image_format, **options)


def with_size(archive: bytes, place: int, size: int) -> bytes:
    """An archive with a new size in the header at a position, in binary and with a valid checksum."""
    header = bytearray(archive[place : place + 512])
    header[124:136] = (size % 2**96).to_bytes(12, 'big') if size < 0 else b'\x80' + size.to_bytes(11, 'big')
    header[148:156] = b' ' * 8
    header[148:156] = b'%06o\0 ' % sum(header)
    return archive[:place] + bytes(header) + archive[place + 512 :]


def annotation(synset: str, boxes: Sequence[Sequence[int]], size: Tuple[int, int] = (80, 60)) -> bytes:
    """An annotation in XML; boxes are xmin, ymin, xmax, ymax in pixels, size is width and height."""
    objects = ''.join(
        f'<object><name>{synset}</name><pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult><bndbox>'
        f'<xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>'
        for xmin, ymin, xmax, ymax in boxes
    )
    return (
        f'<annotation><folder>{synset}</folder><filename>%s</filename><source><database>ILSVRC_2012</database></source>'
        f'<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size><segmented>0</segmented>'
        f'{objects}</annotation>'
    ).encode()


def meta_mat() -> bytes:
    """The development kit's table of classes."""
    fields = [('ILSVRC2012_ID', object), ('WNID', object), ('words', object), ('num_train_images', object)]
    rows = [(number, synset, words, 1300) for number, (synset, words) in enumerate(zip(SYNSETS, WORDS), 1)]
    content = io.BytesIO()
    scipy.io.savemat(content, {'synsets': np.array(rows, fields)[:, np.newaxis]}, do_compression=True)
    return content.getvalue()


class Archives(NamedTuple):
    """The archives in a folder, and their content."""

    folder: pathlib.Path
    train: Dict[str, List[Tuple[str, bytes]]]
    validation: List[Tuple[str, bytes]]
    validation_synsets: List[str]

    @property
    def images(self) -> Dict[str, bytes]:
        """All images by name."""
        return dict([*self.validation, *(image for images in self.train.values() for image in images)])

    @property
    def counts(self) -> Dict[str, int]:
        """The numbers of images by split."""
        return {records.TRAIN: sum(map(len, self.train.values())), records.VALIDATION: len(self.validation)}

    def synset(self, filename: str) -> str:
        if filename.startswith('ILSVRC2012_val_'):
            return self.validation_synsets[int(filename[15:23]) - 1]
        return filename.split('_')[0]

    def arguments(self) -> List[str]:
        """The command's arguments for these archives."""
        counts = [f'--{split}_images={count}' for split, count in self.counts.items()]
        return [*(f'--{part}={self.folder / name}' for part, name in PARTS.items()), *counts]

    def write(self) -> 'Archives':
        """Writes the archives, except the annotations."""
        self.folder.mkdir(parents=True, exist_ok=True)
        classes = [(f'{synset}.tar', tar_of(images)) for synset, images in self.train.items()]
        (self.folder / TRAIN).write_bytes(tar_of(classes))
        (self.folder / VALIDATION).write_bytes(tar_of(self.validation))
        numbers = ''.join(f'{SYNSETS.index(synset) + 1}\n' for synset in self.validation_synsets)
        kit = [('data/ILSVRC2012_validation_ground_truth.txt', numbers.encode()), ('data/meta.mat', meta_mat())]
        files = [(f'ILSVRC2012_devkit_t12/{name}', content) for name, content in kit]
        (self.folder / KIT).write_bytes(tar_of(files, mode='w:gz'))
        return self

    def extract(self, folder: pathlib.Path) -> None:
        """Writes the images to folders: train/n01440764/ and so on, and val/."""
        for synset, images in self.train.items():
            (folder / 'train' / synset).mkdir(parents=True)
            for name, content in images:
                (folder / 'train' / synset / name).write_bytes(content)
        (folder / 'val').mkdir()
        for name, content in self.validation:
            (folder / 'val' / name).write_bytes(content)


def make(folder: pathlib.Path, per_class: int = 6, validation: int = 8) -> Archives:
    """Archives of four classes. The first training image is CMYK, the second PNG, and the third grey."""
    train: Dict[str, List[Tuple[str, bytes]]] = {}
    number = 0
    for synset in CLASSES:
        train[synset] = []
        for _ in range(per_class):
            number += 1
            kind = {1: ('JPEG', 'CMYK'), 2: ('PNG', 'RGB'), 3: ('JPEG', 'L')}.get(number, ('JPEG', 'RGB'))
            # Not sorted by name, like the real archives.
            name = f'{synset}_{number * 7919 % 10007}.JPEG'
            train[synset].append((name, encode(piece(number, 60 + number % 5), *kind)))
    images = [(f'ILSVRC2012_val_{n:08d}.JPEG', encode(piece(n + 1000))) for n in range(validation, 0, -1)]
    synsets = [CLASSES[(3 * n + n // 4) % len(CLASSES)] for n in range(validation)]
    return Archives(folder, train, images, synsets).write()


SPLITS = (records.TRAIN, records.VALIDATION)
SHARDS = {records.TRAIN: 3, records.VALIDATION: 2}


def stored(data_dir: pathlib.Path, split: str) -> Dict[str, Stored]:
    """The records of a split, by the name of the image."""
    images = written_records.stored(data_dir, split)
    found = {image.filename: image for image in images}
    assert len(found) == len(images) and {image.image_format for image in images} == {'JPEG'}
    return found


def files_of(data_dir: pathlib.Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data_dir.iterdir() if '-of-' in path.name}


def convert_here(shards: Sequence[str], data_dir: str, work_dir: str, watch: Callable[[], None]) -> None:
    """Replaces Beam: converts the shards in this process, in order."""
    for shard in shards:
        pipeline.write_shard(shard, data_dir, work_dir)
        watch()


def convert(
    archives: Archives,
    data_dir: pathlib.Path,
    shards: Optional[Dict[str, int]] = None,
    expected: Optional[Dict[str, int]] = None,
    run: Any = convert_here,
    **source: Any,
) -> List[str]:
    """Converts archives without Beam, and returns the messages."""
    places: Dict[str, Any] = {**PARTS, **source}
    paths = {name: str(archives.folder / place) if isinstance(place, str) else place for name, place in places.items()}
    said: List[str] = []
    given = pipeline.Source(**paths), str(data_dir), shards or SHARDS, expected or archives.counts
    pipeline.convert(*given, run, said.append)
    return said


def refusal(archives: Archives, data_dir: pathlib.Path, **options: Any) -> str:
    with pytest.raises(records.DataError) as error:
        convert(archives, data_dir, **options)
    return str(error.value)


def run_imagenet(data_dir: Any, *arguments: str) -> 'subprocess.CompletedProcess[str]':
    command = [sys.executable, '-m', 'tools.datasets.imagenet', str(data_dir), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)
