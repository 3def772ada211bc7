"""Reading CIFAR-10 as published, and files that are damaged or incomplete."""

import gzip
import hashlib
import pathlib
import shutil
from typing import Any, List

import numpy as np
import pytest

from tests.tools.datasets.cifar10.archives import BATCH, NAMES, Published, make
from tools.datasets.cifar10 import conversion as cifar10_conversion

# Before the tests replace it.
PUBLISHED_BATCH = cifar10_conversion._BATCH_IMAGES


@pytest.mark.parametrize('form', ['folder', 'archive', 'archive|gunzip'])
def test_read__gives_the_same_bits_from_each_published_form(
    form: str, published: Published, tmp_path: pathlib.Path
) -> None:
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


@pytest.mark.parametrize(
    ('form', 'names', 'change', 'parts'),
    [
        ('archive', [''], lambda content: content[:100000], ['damaged', 'Download it again']),
        (
            *('folder', ['data_batch_3.bin'], lambda content: content[: 3073 * (BATCH - 1)]),
            ['data_batch_3.bin: 181,307 bytes; 60 images have 184,380'],
        ),
        (
            *('folder', ['data_batch_2.bin'], lambda content: content[: 3073 * 7] + b'\x0a' + content[3073 * 7 + 1 :]),
            ['data_batch_2.bin: 1 of 60 labels are not in 0 to 9 (first: image 7)'],
        ),
        (
            *('folder', ['data_batch_4.bin', 'batches.meta.txt'], None),
            ['batches.meta.txt, data_batch_4.bin missing'],
        ),
        (
            *('folder', ['batches.meta.txt'], lambda content: content[:20]),
            ['batches.meta.txt: does not hold the names of 10 classes'],
        ),
        (
            *('folder', ['batches.meta.txt'], lambda content: content + b'zebra\n'),
            ['batches.meta.txt: does not hold the names of 10 classes'],
        ),
        ('folder', cifar10_conversion._FILES, None, ['not CIFAR-10']),
    ],
)
def test_damaged_source__gives_one_message(
    form: str, names: List[str], change: Any, parts: List[str], published: Published, tmp_path: pathlib.Path
) -> None:
    original = getattr(published, form)
    source = tmp_path / original.name
    (shutil.copytree if original.is_dir() else shutil.copy)(str(original), str(source))  # type: ignore[operator]
    for path in (source / name for name in names):
        if change:
            path.write_bytes(change(path.read_bytes()))
        else:
            path.unlink()
    for given, expected in ((source, parts), (tmp_path / 'nowhere', ['no such file or folder'])):
        code, err = make(given, tmp_path / 'data')
        assert code == 2 and err.count('\n') == 1, err
        for part in [f'error: {given}', *expected]:
            assert part in err
        assert not (tmp_path / 'data').exists()
