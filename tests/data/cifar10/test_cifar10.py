"""CIFAR-10 as tar shards: from archives in the published layout, damaged ones, and conversions that were stopped."""

import collections
import fcntl
import filecmp
import gzip
import hashlib
import json
import lzma
import os
import pathlib
import pickle
import shutil
import sys
import tarfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple
from unittest import mock

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from data import conversion, dataset_info, records
from data.cifar10 import __main__ as cifar10
from data.cifar10 import source as cifar10_source
from data.records import DataError
from data.tar import files as tar_files
from data.tar import reader as tar_reader
from preprocessing.decoding import decode_image
from tests.data.cifar10 import archives as cifar10_archives
from tests.data.cifar10.archives import NAMES, Originals
from tests.data.imagenet import archives as imagenet_archives

# In place of 10,000. What has to do with the real number is tested with it.
BATCH = 60
COUNTS = ['--train_images=750', '--validation_images=90', '--train_shards=5', '--validation_shards=2']


class Published(NamedTuple):
    """The data set in its four forms: two folders, and their archives."""

    images: Dict[str, Originals]
    paths: Dict[str, pathlib.Path]


@pytest.fixture(scope='module', autouse=True)
def _small_batches() -> Iterator[None]:
    with mock.patch.object(cifar10_source, '_BATCH_IMAGES', BATCH):
        yield


@pytest.fixture(scope='module')
def published(tmp_path_factory: Any) -> Published:
    folder, images = tmp_path_factory.mktemp('published'), cifar10_archives.cut_out(BATCH)
    paths = {}
    for version, write in cifar10_archives.WRITERS.items():
        paths[version] = write(folder, images)
        paths[f'{version}.tar.gz'] = cifar10_archives.pack(paths[version])
    return Published(images, paths)


@pytest.fixture(scope='module')
def shards(published: Published, tmp_path_factory: Any) -> pathlib.Path:
    """The shards of the Python version."""
    data_dir = tmp_path_factory.mktemp('shards') / 'data'
    with mock.patch.object(sys, 'argv', ['cifar10', str(published.paths['python']), f'--data_dir={data_dir}', *COUNTS]):
        cifar10.main()
    return data_dir


def make(monkeypatch: Any, capsys: Any, source: Any, data_dir: Any, *options: str) -> Tuple[int, str]:
    """The exit code of the command, and what it says."""
    monkeypatch.setattr(sys, 'argv', ['cifar10', str(source), f'--data_dir={data_dir}', *COUNTS, *options])
    try:
        code = cifar10.main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    out, err = capsys.readouterr()
    assert out == '' and 'Traceback' not in err
    return code, err


# AutoGraph has nothing to convert here, and takes seconds to find that out.
@tf.autograph.experimental.do_not_convert
def in_shards(data_dir: pathlib.Path, split: str) -> List[Tuple[int, np.ndarray]]:
    """The labels and pixels of a split, read as the input pipeline reads them."""
    paths = tar_files.find_shards(str(data_dir), split)
    dataset = tf.data.Dataset.from_tensor_slices((paths, [0] * len(paths))).flat_map(tar_reader.read)
    dataset = dataset.map(tar_reader.parse).map(lambda record: (record.label, decode_image(record.encoded)))
    batch = tf.compat.v1.data.make_one_shot_iterator(dataset.batch(50)).get_next()
    found: List[Tuple[int, np.ndarray]] = []
    with tf.compat.v1.Session() as session:
        try:
            while True:
                labels, pixels = session.run(batch)
                found += zip(labels.tolist(), pixels)
        except tf.errors.OutOfRangeError:
            return found


@pytest.mark.parametrize('form', ['binary', 'binary.tar.gz', 'python', 'python.tar.gz'])
def test_each_form_is_read_to_the_bit(form: str, published: Published) -> None:
    found = cifar10_source.read(str(published.paths[form]))
    assert found.class_names == NAMES
    for split, expected in published.images.items():
        np.testing.assert_array_equal(found.splits[split].pixels, expected.pixels)
        np.testing.assert_array_equal(found.splits[split].labels, expected.labels)
    hashed = hashlib.sha256()
    for images in published.images.values():
        hashed.update(images.pixels.tobytes() + images.labels.astype('<i8').tobytes())
    assert found.digest == hashed.hexdigest()


def renamed(pickled: Any, to: Callable[[str], Any]) -> Any:
    """The same with other texts."""
    if isinstance(pickled, dict):
        return {to(key): renamed(value, to) for key, value in pickled.items()}
    if isinstance(pickled, list):
        return [renamed(value, to) for value in pickled]
    return to(pickled) if isinstance(pickled, str) else pickled


@pytest.mark.parametrize('protocol', [2, 3, 4])
@pytest.mark.parametrize('to', [str, str.encode])
def test_what_python_3_has_pickled_is_read(
    protocol: int, to: Callable[[str], Any], tmp_path: pathlib.Path, published: Published, monkeypatch: Any
) -> None:
    def write_pickle(path: pathlib.Path, value: Any) -> None:
        path.write_bytes(pickle.dumps(renamed(value, to), protocol))

    monkeypatch.setattr(cifar10_archives, 'write_pickle', write_pickle)
    found = cifar10_source.read(str(cifar10_archives.write_python(tmp_path, published.images)))
    assert found == cifar10_source.read(str(published.paths['binary']))._replace(splits=found.splits)
    for split, expected in published.images.items():
        np.testing.assert_array_equal(found.splits[split].pixels, expected.pixels)


def test_an_archive_that_a_browser_has_unpacked_is_read(published: Published, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'cifar-10-binary.tar'
    with tarfile.open(path, 'w') as archive:
        archive.add(str(published.paths['binary']), 'cifar-10-batches-bin')
    assert cifar10_source.read(str(path)) is not None


def test_batches_have_ten_thousand_images(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.undo()
    images = cifar10_archives.cut_out(10000)
    folder = cifar10_archives.write_binary(tmp_path, images)
    assert (folder / 'test_batch.bin').stat().st_size == 30730000
    with mock.patch.object(cifar10_source, '_BATCH_IMAGES', 10000):
        found = cifar10_source.read(str(folder))
    shutil.rmtree(folder)
    for split, expected in images.items():
        assert np.array_equal(found.splits[split].pixels, expected.pixels)
        assert np.array_equal(found.splits[split].labels, expected.labels)


@pytest.mark.parametrize('split', [records.TRAIN, records.VALIDATION])
def test_the_shards_have_each_image_as_often_as_every_other(
    split: str, published: Published, shards: pathlib.Path
) -> None:
    originals = published.images[split]
    # The pixels of no two are the same.
    number_of = {pixels.tobytes(): number for number, pixels in enumerate(originals.pixels)}
    assert len(number_of) == len(originals.labels)
    found = in_shards(shards, split)
    count, expected = (750, [2, 3]) if split == records.TRAIN else (90, [1, 2])
    assert len(found) == count
    numbers = [number_of[pixels.tobytes()] for _, pixels in found]
    assert [label for label, _ in found] == (originals.labels[numbers] + 1).tolist()
    times = collections.Counter(numbers)
    assert len(times) == len(originals.labels) and sorted(set(times.values())) == expected
    # 750 = 2 * 300 + 150, and 90 = 60 + 30: of each class as many.
    assert set(collections.Counter(label for label, _ in found).values()) == {count // 10}
    # The first round has all, and mixes them.
    first = numbers[: len(number_of)]
    assert sorted(first) == list(range(len(number_of))) and first != sorted(first)
    assert numbers[len(number_of) :][: len(number_of)] != first[: count - len(number_of)]


def test_the_shards_are_shared_out_and_described(shards: pathlib.Path) -> None:
    names = [f'train-{n:05d}-of-00005.tar' for n in range(5)] + [f'validation-{n:05d}-of-00002.tar' for n in range(2)]
    assert sorted(os.listdir(str(shards))) == ['conversion.json', 'dataset.json', *names]
    assert tar_files.count_samples([str(shards / name) for name in names]) == [150] * 5 + [45] * 2
    info = dataset_info.read(str(shards))
    assert info and (info.name, info.train_images, info.validation_images) == ('cifar10', 750, 90)
    assert (info.num_classes, info.class_names) == (11, ['background', *NAMES])
    # The fingerprint is that of the files in the shards.
    texts = []
    for split in (records.TRAIN, records.VALIDATION):
        total, images = 0, 0
        for path in tar_files.find_shards(str(shards), split):
            with tarfile.open(path) as archive:
                files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
            for name, encoded in files.items():
                if name.endswith('.png'):
                    label = files[name.replace('.png', '.cls')]
                    total += int.from_bytes(hashlib.sha256(label + b' ' + encoded).digest(), 'big')
                    images += 1
        texts.append(f'{images} {total % 2**256:064x}')
    assert info.fingerprint == hashlib.sha256(' '.join(texts).encode()).hexdigest()


def test_the_published_numbers_come_out_even() -> None:
    labels = np.random.RandomState(0).permutation(np.arange(50000) % 10)
    numbers = cifar10.repeated(labels, 1280000)
    times = np.bincount(numbers, minlength=50000)
    assert set(times.tolist()) == {25, 26}
    assert np.bincount(labels[numbers]).tolist() == [128000] * 10
    assert np.bincount(cifar10.repeated(labels[:10000], 50000)).tolist() == [5] * 10000
    # Fewer than there are, and of classes that are not balanced.
    assert np.bincount([0] * 7 + [1])[1] == 1
    few = cifar10.repeated(np.array([0] * 7 + [1]), 4)
    assert len(set(few.tolist())) == 4 and 7 in few


def test_upsampled_images_are_smooth(
    published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    small = ['--size=80', '--train_images=3', '--train_shards=1', '--validation_images=20', '--validation_shards=1']
    assert make(monkeypatch, capsys, published.paths['binary'], tmp_path / 'data', *small)[0] == 0
    with tarfile.open(tmp_path / 'data' / 'validation-00000-of-00001.tar') as archive:
        assert archive.getnames()[:2] == ['00000000.jpg', '00000000.cls']
    # Another program's bicubic interpolation, by the same cubic.
    references = [
        np.asarray(PIL.Image.fromarray(pixels).resize((80, 80), PIL.Image.BICUBIC), np.float32)
        for pixels in published.images[records.VALIDATION].pixels
    ]
    found = in_shards(tmp_path / 'data', records.VALIDATION)
    assert len(found) == 20
    for _, pixels in found:
        assert pixels.shape == (80, 80, 3)
        differences = [np.abs(pixels - reference).mean() for reference in references]
        # What JPEG loses; of any other image more than that is different.
        assert min(differences) < 3 < sorted(differences)[1]


# What is damaged, by a function that changes a folder or an archive, and what the message says of it.


def cut(name: str, size: int) -> Callable[[pathlib.Path], None]:
    def change(path: pathlib.Path) -> None:
        file = path / name if name else path
        file.write_bytes(file.read_bytes()[:size])

    return change


def replace_at(name: str, position: int, value: int) -> Callable[[pathlib.Path], None]:
    def change(path: pathlib.Path) -> None:
        file = path / name if name else path
        content = bytearray(file.read_bytes())
        content[position] = value if value >= 0 else content[position] ^ 0xFF
        file.write_bytes(bytes(content))

    return change


def remove(*names: str) -> Callable[[pathlib.Path], None]:
    def change(path: pathlib.Path) -> None:
        for name in names:
            (path / name).unlink()

    return change


def pickled(name: str, value: Any) -> Callable[[pathlib.Path], None]:
    return lambda path: cifar10_archives.write_pickle(path / name, value)


def compressed_otherwise(change: Callable[[bytes], bytes]) -> Callable[[pathlib.Path], None]:
    """The archive in another compression, changed."""

    def pack(path: pathlib.Path) -> None:
        path.write_bytes(change(lzma.compress(gzip.decompress(path.read_bytes()), preset=0)))

    return pack


def size_below_nothing(path: pathlib.Path) -> None:
    """In the header of the second batch."""
    archive = gzip.decompress(path.read_bytes())
    path.write_bytes(imagenet_archives.with_size(archive, archive.index(b'cifar-10-batches-bin/data_batch_2'), -512))


def flipped(content: bytes) -> bytes:
    """Not in what is compressed, of which much may still be read, but in the checksum of the index behind it."""
    changed = bytearray(content)
    changed[-16] ^= 0x55
    return bytes(changed)


ROWS = np.zeros([BATCH, 3072], np.uint8)
LABELS = [0] * BATCH


@pytest.mark.parametrize(
    ('form', 'change', 'parts'),
    [
        ('binary.tar.gz', cut('', 100000), ['damaged', 'Download it again']),
        ('binary.tar.gz', cut('', 0), ['damaged']),
        ('binary.tar.gz', replace_at('', 200000, -1), ['damaged']),
        ('binary.tar.gz', compressed_otherwise(flipped), ['damaged', 'Corrupt input data']),
        ('binary.tar.gz', compressed_otherwise(lambda content: content[: len(content) // 2]), ['damaged', 'ended']),
        ('binary.tar.gz', size_below_nothing, ['damaged', ' claims a size of -512 bytes']),
        # The checksum at the end.
        ('python.tar.gz', replace_at('', -5, -1), ['damaged', 'CRC']),
        (
            'binary',
            cut('data_batch_3.bin', 3073 * (BATCH - 1)),
            ['data_batch_3.bin: 181,307 bytes; 60 images have 184,380'],
        ),
        ('binary', cut('test_batch.bin', 0), ['test_batch.bin: 0 bytes']),
        ('binary', replace_at('data_batch_2.bin', 3073 * 7, 10), ['data_batch_2.bin: the label of image 7']),
        ('binary', remove('data_batch_4.bin', 'batches.meta.txt'), ['batches.meta.txt, data_batch_4.bin missing']),
        ('binary', cut('batches.meta.txt', 20), ['batches.meta.txt: does not hold the names of 10 classes']),
        ('binary', replace_at('batches.meta.txt', 0, 0xFF), ['batches.meta.txt: does not hold the names']),
        ('python', remove('test_batch'), ['test_batch missing']),
        ('python', cut('data_batch_1', 100000), ['data_batch_1: damaged, or not a pickle']),
        ('python', cut('data_batch_1', 0), ['data_batch_1: damaged, or not a pickle']),
        ('python', pickled('data_batch_1', [1, 2]), ['data_batch_1: not a batch of CIFAR-10']),
        ('python', pickled('data_batch_1', {'data': ROWS, 'labels': LABELS[1:]}), ['data_batch_1: not a batch']),
        ('python', pickled('data_batch_1', {'data': ROWS, 'labels': [0.5, *LABELS[1:]]}), ['not a batch']),
        ('python', pickled('data_batch_1', {'data': ROWS, 'labels': [2**70, *LABELS[1:]]}), ['the label of image 0']),
        ('python', pickled('data_batch_1', {'data': ROWS, 'labels': [*LABELS[1:], -1]}), ['the label of image 59']),
        ('python', pickled('data_batch_1', {'data': ROWS.astype(np.int32), 'labels': LABELS}), ['not a batch']),
        ('python', pickled('data_batch_1', {'data': ROWS[1:], 'labels': LABELS}), ['not a batch']),
        ('python', pickled('data_batch_1', {'data': ROWS.tobytes(), 'labels': LABELS}), ['not a batch']),
        ('python', pickled('data_batch_1', {'data': np.asfortranarray(ROWS), 'labels': LABELS}), ['not a batch']),
        ('python', pickled('batches.meta', {}), ['batches.meta: does not hold the names of 10 classes']),
        ('python', pickled('batches.meta', {'label_names': [1] * 10}), ['batches.meta: does not hold the names']),
        ('python', shutil.rmtree, ['no such file or folder']),
    ],
)
def test_what_is_damaged_is_told_in_one_message(
    form: str,
    change: Callable[[pathlib.Path], None],
    parts: List[str],
    published: Published,
    tmp_path: pathlib.Path,
    monkeypatch: Any,
    capsys: Any,
) -> None:
    original = published.paths[form]
    source = tmp_path / original.name
    (shutil.copytree if original.is_dir() else shutil.copy)(str(original), str(source))  # type: ignore[operator]
    change(source)
    code, err = make(monkeypatch, capsys, source, tmp_path / 'data')
    assert code == 2 and err.count('\n') == 1, err
    for part in [f'error: {source}', *parts]:
        assert part in err
    assert not (tmp_path / 'data').exists()


def test_what_is_no_cifar_10_is_told(
    published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    text = tmp_path / 'notes.txt'
    text.write_text('nothing')
    parent = published.paths['binary'].parent
    for source, part in ((tmp_path, 'not CIFAR-10'), (text, 'no tar archive'), (parent, 'cifar-10-batches-bin')):
        code, err = make(monkeypatch, capsys, source, tmp_path / 'data')
        assert code == 2 and part in err and err.count('\n') == 1


class _Harmful:
    def __init__(self, function: Callable, *arguments: Any):
        self._reduced = function, arguments

    def __reduce__(self) -> Tuple[Callable, Tuple]:
        return self._reduced


@pytest.mark.parametrize('protocol', [0, 2, 4])
@pytest.mark.parametrize('where', ['data', 'labels', 'batch_label', None])
def test_a_pickle_that_would_do_harm_is_refused_and_does_none(
    where: Any, protocol: int, published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    source = tmp_path / 'cifar-10-batches-py'
    shutil.copytree(str(published.paths['python']), str(source))
    harmful = _Harmful(os.mkdir, str(tmp_path / 'harm'))
    value = {b'data': ROWS, b'labels': LABELS, where.encode(): harmful} if where else harmful
    content = pickle.dumps(value, protocol)
    (source / 'data_batch_5').write_bytes(content)
    code, err = make(monkeypatch, capsys, source, tmp_path / 'data')
    assert code == 2 and err.count('\n') == 1
    assert f'{source}, data_batch_5: refers to ' in err and 'could run code' in err
    assert not (tmp_path / 'harm').exists()
    # It would have.
    pickle.loads(content)
    assert (tmp_path / 'harm').exists()


def test_what_stands_for_arrays_runs_nothing_either(published: Published, tmp_path: pathlib.Path) -> None:
    source = tmp_path / 'cifar-10-batches-py'
    shutil.copytree(str(published.paths['python']), str(source))
    # An array that is made with foreign arguments, and given an attribute that is a function of the program.
    for content in (
        b"cnumpy.core.multiarray\n_reconstruct\n(S'x'\ntR}S'content'\nI1\nsb.",
        b"cnumpy\nndarray\n}S'content'\nI1\nsb.",
        b'cnumpy\ndtype\n(tRcnumpy\ndtype\nb.',
    ):
        (source / 'data_batch_5').write_bytes(content)
        with pytest.raises(DataError, match='data_batch_5'):
            cifar10_source.read(str(source))
    (source / 'data_batch_5').write_bytes((published.paths['python'] / 'data_batch_5').read_bytes())
    cifar10_source.read(str(source))


def test_a_conversion_that_was_stopped_goes_on(
    published: Published, shards: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    data_dir = tmp_path / 'data'
    write_whole, written = conversion.write_whole, []

    def stop_at_the_fourth_shard(path: str, *others: Any) -> None:
        written.append(os.path.basename(path))
        if path.endswith('train-00003-of-00005.tar'):
            raise KeyboardInterrupt
        write_whole(path, *others)

    # The binary version from now on, of which the same has to come.
    source = published.paths['binary.tar.gz']
    with monkeypatch.context() as patch:
        patch.setattr(conversion, 'write_whole', stop_at_the_fourth_shard)
        code, err = make(monkeypatch, capsys, source, data_dir)
    assert code == 130 and 'interrupted; the same command resumes' in err
    finished = {name: os.stat(str(data_dir / name)).st_mtime_ns for name in os.listdir(str(data_dir))}
    assert sorted(finished) == ['conversion', *(f'train-{shard:05d}-of-00005.tar' for shard in range(3))]

    code, err = make(monkeypatch, capsys, source, data_dir, '--train_images=751', '--size=64')
    assert code == 2 and '--size was 32, and is 64; --train_images was 750, and is 751' in err
    with open(str(data_dir / 'conversion' / 'lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, err = make(monkeypatch, capsys, source, data_dir)
    assert code == 2 and 'in use by another conversion' in err

    code, err = make(monkeypatch, capsys, source, data_dir)
    assert code == 0 and '3 of 5 train shards are already finished' in err
    names = sorted(os.listdir(str(data_dir)))
    assert names == sorted(os.listdir(str(shards)))
    assert filecmp.cmpfiles(str(data_dir), str(shards), names, shallow=False) == (names, [], [])
    for name, moment in finished.items():
        assert name == 'conversion' or os.stat(str(data_dir / name)).st_mtime_ns == moment

    code, err = make(monkeypatch, capsys, source, data_dir)
    assert (code, err) == (0, f'{data_dir}: already finished\n')
    code, err = make(monkeypatch, capsys, source, data_dir, '--validation_shards=1')
    assert code == 2 and '--validation_shards was 2, and is 1' in err


def test_a_folder_that_holds_something_is_left_alone(
    published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / 'mine.txt').write_text('')
    code, err = make(monkeypatch, capsys, published.paths['binary'], tmp_path)
    assert code == 2 and err == f'error: {tmp_path}: exists already. Name a new folder.\n'
    assert os.listdir(str(tmp_path)) == ['mine.txt']


@pytest.mark.parametrize(
    ('content', 'expected'),
    [
        (
            '{"settings": {"--train": "x"}}',
            'was begun with other settings: CIFAR-10 was not given, and is that of SHA-256 ',
        ),
        ('{}', 'conversion.json: does not hold the settings of a conversion. Name a new folder.'),
        ('[', 'conversion.json: does not hold the settings of a conversion. Name a new folder.'),
    ],
)
def test_a_folder_of_another_conversion_is_left_alone(
    content: str, expected: str, published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / 'conversion.json').write_text(content)
    code, err = make(monkeypatch, capsys, published.paths['binary'], tmp_path)
    assert code == 2 and expected in err and err.count('\n') == 1
    assert os.listdir(str(tmp_path)) == ['conversion.json']


def test_a_shard_that_cannot_be_written_is_named(
    published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    # In the place of the third shard there is a folder.
    name = 'train-00002-of-00005.tar'
    names_in = conversion.remote.names_in

    def without_it(folder: str) -> Any:
        return [each for each in names_in(folder) or () if each.rstrip('/') != name]

    (tmp_path / 'data').mkdir()
    monkeypatch.setattr(conversion.remote, 'names_in', without_it)
    (tmp_path / 'data' / name).mkdir()
    code, err = make(monkeypatch, capsys, published.paths['binary'], tmp_path / 'data')
    assert code == 2 and f'{name}: cannot be written' in err and 'The same command resumes' in err
    assert (tmp_path / 'data' / 'train-00001-of-00005.tar').exists()
    (tmp_path / 'data' / name).rmdir()
    assert make(monkeypatch, capsys, published.paths['binary'], tmp_path / 'data')[0] == 0


@pytest.mark.parametrize(
    ('option', 'expected'),
    [
        ('--size=31', '--size=31: must be 32 to 512.'),
        ('--size=513', '--size=513: must be 32 to 512.'),
        ('--train_shards=751', '--train_shards=751: must be at least 1, and at most --train_images=750.'),
        ('--validation_shards=0', '--validation_shards=0: must be at least 1'),
        ('--train_images=-1', 'at most --train_images=-1.'),
    ],
)
def test_values_out_of_range_are_refused(
    option: str, expected: str, published: Published, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    code, err = make(monkeypatch, capsys, published.paths['binary'], tmp_path / 'data', option)
    assert code == 2 and expected in err and not (tmp_path / 'data').exists()


def test_the_documented_numbers_are_the_defaults() -> None:
    arguments = vars(cifar10._parser().parse_args(['archive', '--data_dir=out']))
    assert [arguments[name] for name in ('train_images', 'validation_images')] == [1280000, 50000]
    assert [arguments[name] for name in ('train_shards', 'validation_shards', 'size')] == [640, 50, 32]
    assert json.dumps(arguments)
