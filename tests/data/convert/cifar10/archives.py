"""CIFAR-10 in the layout of its two versions, with pieces of photographs as images, and its conversion."""

import pathlib
import pickle
import struct
import tarfile
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import skimage.data

from data import records
from data.convert.cifar10 import __main__ as cifar10
from tests.support.commands import run

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


def of_python_2(value: Any) -> bytes:
    """The opcodes that Python 2, which has one type for strings and bytes, pickles a value with."""
    if isinstance(value, np.ndarray):
        begin = b'cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n' + of_python_2((0,)) + of_python_2('b')
        return begin + b'tR' + of_python_2(value.__reduce__()[2]) + b'b'
    if isinstance(value, np.dtype):
        _, arguments, state = value.__reduce__()
        return b'cnumpy\ndtype\n' + of_python_2(arguments) + b'R' + of_python_2(state) + b'b'
    if isinstance(value, (bytes, str)):
        content = value if isinstance(value, bytes) else value.encode()
        return pickle.BINSTRING + struct.pack('<i', len(content)) + content
    if isinstance(value, dict):
        return b'}(' + b''.join(of_python_2(each) for item in value.items() for each in item) + b'u'
    if isinstance(value, (list, tuple)):
        return b'(' + b''.join(map(of_python_2, value)) + (b'l' if isinstance(value, list) else b't')
    return pickle.dumps(value, 2)[2:-1]


def write_pickle(path: pathlib.Path, value: Any) -> None:
    """Pickles a value to a file as Python 2 does."""
    path.write_bytes(b'\x80\2' + of_python_2(value) + b'.')


def _batches(images: Dict[str, Originals]) -> List[Any]:
    train, test = images[records.TRAIN], images[records.VALIDATION]
    parts = zip(np.split(train.pixels, 5), np.split(train.labels, 5))
    named = [(f'data_batch_{number}', *part) for number, part in enumerate(parts, 1)]
    # The red, green and blue planes, in this order.
    return [
        (name, pixels.transpose(0, 3, 1, 2).reshape(len(pixels), 3072), labels)
        for name, pixels, labels in [*named, ('test_batch', *test)]
    ]


def write_binary(folder: pathlib.Path, images: Dict[str, Originals]) -> pathlib.Path:
    """Writes the folder of the binary version."""
    folder = folder / 'cifar-10-batches-bin'
    folder.mkdir()
    for name, planes, labels in _batches(images):
        (folder / f'{name}.bin').write_bytes(np.hstack([labels[:, np.newaxis].astype(np.uint8), planes]).tobytes())
    (folder / 'batches.meta.txt').write_text('\n'.join([*NAMES, '', '']))
    (folder / 'readme.html').write_text('<html></html>')
    return folder


def write_python(folder: pathlib.Path, images: Dict[str, Originals]) -> pathlib.Path:
    """Writes the folder of the Python version."""
    folder = folder / 'cifar-10-batches-py'
    folder.mkdir()
    for name, planes, labels in _batches(images):
        filenames = [f'photo_s_{number:06d}.png' for number in range(len(labels))]
        batch = {'data': planes, 'labels': labels.tolist(), 'batch_label': name, 'filenames': filenames}
        write_pickle(folder / name, batch)
    write_pickle(folder / 'batches.meta', {'num_cases_per_batch': 10000, 'label_names': NAMES, 'num_vis': 3072})
    return folder


WRITERS: Dict[str, Callable[..., pathlib.Path]] = {'binary': write_binary, 'python': write_python}


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
    """The data set in its four forms: two folders, and their archives."""

    images: Dict[str, Originals]
    paths: Dict[str, pathlib.Path]


def make(source: Any, data_dir: Any, *options: str) -> Tuple[int, str]:
    """Runs the command in this process, and returns its exit code and standard error."""
    done = run(cifar10.main, source, f'--data_dir={data_dir}', *COUNTS, *options)
    assert done.stdout == '' and 'Traceback' not in done.stderr
    return done.returncode, done.stderr
