"""Reading CIFAR-10 as published, and files that are damaged or incomplete."""

import gzip
import hashlib
import pathlib
import shutil
from typing import Callable, List

import numpy as np
import pytest

from data.convert.cifar10 import conversion as cifar10_conversion
from tests.data.convert.cifar10.archives import BATCH, NAMES, Published, make

# Before the tests replace it.
PUBLISHED_BATCH = cifar10_conversion._BATCH_IMAGES


@pytest.mark.parametrize('form', ['folder', 'archive', 'archive|gunzip'])
def test_read__each_form_bit_for_bit(form: str, published: Published, tmp_path: pathlib.Path) -> None:
    path = getattr(published, form.partition('|')[0])
    if form.endswith('|gunzip'):
        # Some browsers decompress a download.
        (tmp_path / 'unpacked.tar').write_bytes(gzip.decompress(path.read_bytes()))
        path = tmp_path / 'unpacked.tar'
    assert PUBLISHED_BATCH == 10000
    found = cifar10_conversion.read(str(path))
    assert found.class_names == NAMES
    for split, expected in published.images.items():
        np.testing.assert_array_equal(found.splits[split].pixels, expected.pixels)
        np.testing.assert_array_equal(found.splits[split].labels, expected.labels)
    hashed = hashlib.sha256()
    for images in published.images.values():
        hashed.update(images.pixels.tobytes() + images.labels.astype('<i8').tobytes())
    assert found.digest == hashed.hexdigest()


def cut(name: str, size: int) -> Callable[[pathlib.Path], None]:
    def change(path: pathlib.Path) -> None:
        file = path / name if name else path
        file.write_bytes(file.read_bytes()[:size])

    return change


def replace_at(name: str, position: int, value: int) -> Callable[[pathlib.Path], None]:
    def change(path: pathlib.Path) -> None:
        file = path / name
        content = bytearray(file.read_bytes())
        content[position] = value
        file.write_bytes(bytes(content))

    return change


def remove(*names: str) -> Callable[[pathlib.Path], None]:
    def change(path: pathlib.Path) -> None:
        for name in names:
            (path / name).unlink()

    return change


@pytest.mark.parametrize(
    ('form', 'change', 'parts'),
    [
        ('archive', cut('', 100000), ['damaged', 'Download it again']),
        (
            'folder',
            cut('data_batch_3.bin', 3073 * (BATCH - 1)),
            ['data_batch_3.bin: 181,307 bytes; 60 images have 184,380'],
        ),
        (
            'folder',
            replace_at('data_batch_2.bin', 3073 * 7, 10),
            ['data_batch_2.bin: 1 of 60 labels are not in 0 to 9 (first: image 7)'],
        ),
        ('folder', remove('data_batch_4.bin', 'batches.meta.txt'), ['batches.meta.txt, data_batch_4.bin missing']),
        ('folder', cut('batches.meta.txt', 20), ['batches.meta.txt: does not hold the names of 10 classes']),
        ('folder', shutil.rmtree, ['no such file or folder']),
        (
            'folder',
            remove(*cifar10_conversion._FILES),
            ['not CIFAR-10'],
        ),
    ],
)
def test_damaged_source__gives_one_message(
    form: str,
    change: Callable[[pathlib.Path], None],
    parts: List[str],
    published: Published,
    tmp_path: pathlib.Path,
) -> None:
    original = getattr(published, form)
    source = tmp_path / original.name
    (shutil.copytree if original.is_dir() else shutil.copy)(str(original), str(source))  # type: ignore[operator]
    change(source)
    code, err = make(source, tmp_path / 'data')
    assert code == 2 and err.count('\n') == 1, err
    for part in [f'error: {source}', *parts]:
        assert part in err
    assert not (tmp_path / 'data').exists()
