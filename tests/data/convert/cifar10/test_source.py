"""Reading CIFAR-10: both published versions, and files that are damaged, incomplete or harmful."""

import gzip
import hashlib
import os
import pathlib
import pickle
import shutil
from typing import Any, Callable, List, Tuple

import numpy as np
import pytest

from data.convert.cifar10 import conversion as cifar10_conversion
from data.records import DataError
from tests.data.convert.cifar10 import archives as cifar10_archives
from tests.data.convert.cifar10.archives import BATCH, NAMES, Published, make

# Before the tests replace it.
PUBLISHED_BATCH = cifar10_conversion._BATCH_IMAGES


@pytest.mark.parametrize('form', ['binary', 'binary.tar.gz', 'binary.tar.gz|gunzip', 'python', 'python.tar.gz'])
def test_read__each_form_bit_for_bit(form: str, published: Published, tmp_path: pathlib.Path) -> None:
    path = published.paths[form.partition('|')[0]]
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


def pickled(name: str, value: Any) -> Callable[[pathlib.Path], None]:
    return lambda path: cifar10_archives.write_pickle(path / name, value)


ROWS = np.zeros([BATCH, 3072], np.uint8)
LABELS = [0] * BATCH


@pytest.mark.parametrize(
    ('form', 'change', 'parts'),
    [
        ('binary.tar.gz', cut('', 100000), ['damaged', 'Download it again']),
        (
            'binary',
            cut('data_batch_3.bin', 3073 * (BATCH - 1)),
            ['data_batch_3.bin: 181,307 bytes; 60 images have 184,380'],
        ),
        (
            'binary',
            replace_at('data_batch_2.bin', 3073 * 7, 10),
            ['data_batch_2.bin: 1 of 60 labels are not in 0 to 9 (first: image 7)'],
        ),
        ('binary', remove('data_batch_4.bin', 'batches.meta.txt'), ['batches.meta.txt, data_batch_4.bin missing']),
        ('binary', cut('batches.meta.txt', 20), ['batches.meta.txt: does not hold the names of 10 classes']),
        ('python', cut('data_batch_1', 100000), ['data_batch_1: damaged, or not a pickle']),
        ('python', pickled('data_batch_1', [1, 2]), ['data_batch_1: not a batch of CIFAR-10']),
        ('python', pickled('data_batch_1', {'data': ROWS, 'labels': LABELS[1:]}), ['data_batch_1: not a batch']),
        ('python', pickled('data_batch_1', {'data': ROWS, 'labels': [0.5, *LABELS[1:]]}), ['not a batch']),
        (
            'python',
            pickled('data_batch_1', {'data': ROWS, 'labels': [2**70, *LABELS[1:]]}),
            ['labels are not in 0 to 9 (first: image 0)'],
        ),
        (
            'python',
            pickled('data_batch_1', {'data': ROWS, 'labels': [*LABELS[1:], -1]}),
            ['labels are not in 0 to 9 (first: image 59)'],
        ),
        ('python', pickled('data_batch_1', {'data': ROWS.astype(np.int32), 'labels': LABELS}), ['not a batch']),
        ('python', pickled('data_batch_1', {'data': ROWS[1:], 'labels': LABELS}), ['not a batch']),
        ('python', pickled('data_batch_1', {'data': np.asfortranarray(ROWS), 'labels': LABELS}), ['not a batch']),
        ('python', pickled('batches.meta', {}), ['batches.meta: does not hold the names of 10 classes']),
        ('python', shutil.rmtree, ['no such file or folder']),
        ('python', remove('batches.meta', 'test_batch', *(f'data_batch_{n}' for n in range(1, 6))), ['not CIFAR-10']),
    ],
)
def test_damaged_source__gives_one_message(
    form: str,
    change: Callable[[pathlib.Path], None],
    parts: List[str],
    published: Published,
    tmp_path: pathlib.Path,
) -> None:
    original = published.paths[form]
    source = tmp_path / original.name
    (shutil.copytree if original.is_dir() else shutil.copy)(str(original), str(source))  # type: ignore[operator]
    change(source)
    code, err = make(source, tmp_path / 'data')
    assert code == 2 and err.count('\n') == 1, err
    for part in [f'error: {source}', *parts]:
        assert part in err
    assert not (tmp_path / 'data').exists()


class _Harmful:
    def __init__(self, function: Callable, *arguments: Any):
        self._reduced = function, arguments

    def __reduce__(self) -> Tuple[Callable, Tuple]:
        return self._reduced


@pytest.mark.parametrize(('where', 'protocol'), [('data', 0), ('batch_label', 2), (None, 4)])
def test_harmful_pickle__is_refused_and_not_run(
    where: Any, protocol: int, published: Published, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / 'cifar-10-batches-py'
    shutil.copytree(str(published.paths['python']), str(source))
    harmful = _Harmful(os.mkdir, str(tmp_path / 'harm'))
    value = {'labels': LABELS, where: harmful} if where else harmful
    content = pickle.dumps(value, protocol)
    (source / 'data_batch_5').write_bytes(content)
    code, err = make(source, tmp_path / 'data')
    assert code == 2 and err.count('\n') == 1
    assert f'{source}, data_batch_5: refers to ' in err and 'could run code' in err
    assert not (tmp_path / 'harm').exists()
    # Without the check, the pickle runs code.
    pickle.loads(content)
    assert (tmp_path / 'harm').exists()


def test_pickled_arrays__run_no_code(published: Published, tmp_path: pathlib.Path) -> None:
    source = tmp_path / 'cifar-10-batches-py'
    shutil.copytree(str(published.paths['python']), str(source))
    # An array with foreign arguments, and with a function of the program as its state.
    for content in (
        b"cnumpy.core.multiarray\n_reconstruct\n(S'x'\ntR}S'content'\nI1\nsb.",
        b"cnumpy\nndarray\n}S'content'\nI1\nsb.",
        b'cnumpy\ndtype\n(tRcnumpy\ndtype\nb.',
    ):
        (source / 'data_batch_5').write_bytes(content)
        with pytest.raises(DataError, match='data_batch_5'):
            cifar10_conversion.read(str(source))
    (source / 'data_batch_5').write_bytes((published.paths['python'] / 'data_batch_5').read_bytes())
    cifar10_conversion.read(str(source))
