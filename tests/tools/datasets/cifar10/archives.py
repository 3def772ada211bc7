"""CIFAR-10 in the layout of its binary version, with pieces of photographs as images, and its conversion."""

import pathlib
import tarfile
from typing import Any, Dict, NamedTuple, Tuple

import numpy as np
import skimage.data

from data import records
from tests.support.commands import run
from tools.datasets.cifar10 import __main__ as cifar10

NAMES = ['airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck']


class Originals(NamedTuple):
    """The images of a split: uint8 [images, 32, 32, 3], and their labels, 0 to 9."""

    pixels: np.ndarray
    labels: np.ndarray


def cut_out(batch_images: int) -> Dict[str, Originals]:
    """Cuts images of balanced classes for both splits, all different until the photographs are used up."""
    photographs = [skimage.data.chelsea(), skimage.data.astronaut(), skimage.data.coffee(), skimage.data.rocket()]
    pieces = np.array(
        [
            photograph[top : top + 32, left : left + 32]
            for photograph in photographs
            for top in range(0, photograph.shape[0] - 32, 23)
            for left in range(0, photograph.shape[1] - 32, 23)
        ]
    )
    found = {}
    for split, batches, first in ((records.TRAIN, 5, 0), (records.VALIDATION, 1, 5)):
        numbers = np.arange(first * batch_images, (first + batches) * batch_images)
        # Neighbours come from the same photograph, but have different classes.
        labels = np.random.RandomState(first).permutation(numbers % 10)
        found[split] = Originals(pieces[numbers % len(pieces)], labels)
    return found


def write_binary(folder: pathlib.Path, images: Dict[str, Originals]) -> pathlib.Path:
    """Writes the folder of the binary version."""
    folder = folder / 'cifar-10-batches-bin'
    folder.mkdir()
    train, test = images[records.TRAIN], images[records.VALIDATION]
    parts = zip(np.split(train.pixels, 5), np.split(train.labels, 5))
    for name, pixels, labels in [
        *((f'data_batch_{n}', *part) for n, part in enumerate(parts, 1)),
        ('test_batch', *test),
    ]:
        # The red, green and blue planes, in this order.
        planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), 3072)
        (folder / f'{name}.bin').write_bytes(np.hstack([labels[:, np.newaxis].astype(np.uint8), planes]).tobytes())
    (folder / 'batches.meta.txt').write_text('\n'.join([*NAMES, '', '']))
    (folder / 'readme.html').write_text('<html></html>')
    return folder


def pack(folder: pathlib.Path) -> pathlib.Path:
    """Packs a folder into an archive beside it."""
    path = folder.parent / f'{folder.name}.tar.gz'
    with tarfile.open(path, 'w:gz', compresslevel=1) as archive:
        archive.add(str(folder), folder.name)
    return path


# Instead of 10,000. One test uses the real number.
BATCH = 60


COUNTS = ['--train_images=750', '--validation_images=90', '--train_shards=5', '--validation_shards=2']


class Published(NamedTuple):
    """The data set in its two forms: the folder, and its archive."""

    images: Dict[str, Originals]
    folder: pathlib.Path
    archive: pathlib.Path


def make(source: Any, data_dir: Any, *options: str) -> Tuple[int, str]:
    """Runs the command in this process, and returns its exit code and standard error."""
    done = run(cifar10.main, source, f'--data_dir={data_dir}', *COUNTS, *options)
    assert done.stdout == '' and 'Traceback' not in done.stderr
    return done.returncode, done.stderr
