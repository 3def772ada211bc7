"""The conversion of CIFAR-10 to tar shards: content, order, resumption, and the command."""

import collections
import filecmp
import io
import os
import pathlib
from typing import Any, List, NamedTuple

import numpy as np
import PIL.Image
import pytest

from data import dataset_info, records
from data.formats import FORMATS
from data.tar.shard import Shard
from tests.data.written_records import fingerprint_of
from tests.support.commands import largest_file
from tests.tools.datasets.cifar10.archives import NAMES, Published, make
from tests.tools.datasets.conftest import Told
from tools.datasets.cifar10 import __main__ as cifar10
from tools.datasets.cifar10 import conversion as cifar10_conversion
from tools.datasets.fingerprints import fingerprint


class Image(NamedTuple):
    """A sample."""

    label: int
    encoded: bytes


def in_shards(data_dir: pathlib.Path, split: str) -> List[Image]:
    """The samples of a split, in order."""
    found: List[Image] = []
    for path in FORMATS['tar'].find_shards(str(data_dir), split):
        with Shard(path) as shard:
            for sample in shard.samples():
                # The keys are numbered over all shards.
                assert sample.image and not sample.problem and sample.key == f'{len(found):08d}'
                found.append(Image(sample.label, shard.read(sample.image.start, sample.image.size)))
    return found


def decoded(encoded: bytes) -> np.ndarray:
    return np.asarray(PIL.Image.open(io.BytesIO(encoded)))


@pytest.mark.parametrize('split', [records.TRAIN, records.VALIDATION])
def test_shards__repeat_every_image_equally_often(split: str, published: Published, shards: pathlib.Path) -> None:
    originals = published.images[split]
    # All images are different.
    number_of = {pixels.tobytes(): number for number, pixels in enumerate(originals.pixels)}
    assert len(number_of) == len(originals.labels)
    found = in_shards(shards, split)
    count, expected = (750, [2, 3]) if split == records.TRAIN else (90, [1, 2])
    assert len(found) == count
    numbers = [number_of[decoded(encoded).tobytes()] for _, encoded in found]
    assert [label for label, _ in found] == (originals.labels[numbers] + 1).tolist()
    times = collections.Counter(numbers)
    assert len(times) == len(originals.labels) and sorted(set(times.values())) == expected
    # 750 = 2 * 300 + 150, and 90 = 60 + 30: each class has the same number.
    assert set(collections.Counter(label for label, _ in found).values()) == {count // 10}
    # The first repetition has all images, mixed.
    first = numbers[: len(number_of)]
    assert sorted(first) == list(range(len(number_of))) and first != sorted(first)
    assert numbers[len(number_of) :][: len(number_of)] != first[: count - len(number_of)]


def test_shards__have_equal_sizes_and_a_description(shards: pathlib.Path) -> None:
    names = [f'train-{n:05d}-of-00005.tar' for n in range(5)] + [f'validation-{n:05d}-of-00002.tar' for n in range(2)]
    assert sorted(os.listdir(str(shards))) == ['conversion.json', 'dataset.json', *names]
    assert FORMATS['tar'].count_records([str(shards / name) for name in names]) == [150] * 5 + [45] * 2
    info = dataset_info.read(str(shards))
    assert info and (info.name, info.train_images, info.validation_images) == ('cifar10', 750, 90)
    assert (info.num_classes, info.class_names) == (11, ['background', *NAMES])
    parts = (fingerprint_of(in_shards(shards, split)) for split in (records.TRAIN, records.VALIDATION))
    assert info.fingerprint == fingerprint(*parts)


def test_repeated__balances_images_and_classes() -> None:
    assert (cifar10.IMAGES, cifar10.SHARDS) == (
        {'train': 1280000, 'validation': 50000},
        {'train': 640, 'validation': 50},
    )
    labels = np.random.RandomState(0).permutation(np.arange(50000) % 10)
    numbers = cifar10_conversion.repeated(labels, 1280000)
    times = np.bincount(numbers, minlength=50000)
    assert set(times.tolist()) == {25, 26}
    assert np.bincount(labels[numbers]).tolist() == [128000] * 10
    assert np.bincount(cifar10_conversion.repeated(labels[:10000], 50000)).tolist() == [5] * 10000
    # Fewer images than originals, of unbalanced classes.
    few = cifar10_conversion.repeated(np.array([0] * 7 + [1]), 4)
    assert len(set(few.tolist())) == 4 and 7 in few


def test_interrupted_conversion__resumes(
    published: Published, shards: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: Any, told: Told
) -> None:
    data_dir = tmp_path / 'data'
    write_whole, written = cifar10_conversion.write_whole, []

    def stop_at_the_fourth_shard(path: str, *others: Any) -> None:
        written.append(os.path.basename(path))
        if path.endswith('train-00003-of-00005.tar'):
            raise KeyboardInterrupt
        write_whole(path, *others)

    # Converts the archive, which must give the same shards as the folder.
    source = published.archive
    with monkeypatch.context() as patch:
        patch.setattr(cifar10_conversion, 'write_whole', stop_at_the_fourth_shard)
        code, err = make(source, data_dir)
    assert code == 130 and 'interrupted; the same command resumes' in err
    finished = {name: os.stat(str(data_dir / name)).st_mtime_ns for name in os.listdir(str(data_dir))}
    assert sorted(finished) == ['conversion', *(f'train-{shard:05d}-of-00005.tar' for shard in range(3))]

    code, err = make(source, data_dir, '--train_images=751')
    assert code == 2 and '--train_images was 750, and is 751' in err
    (settings,) = (data_dir / 'conversion').glob('*.json')
    own = settings.read_text()
    # An earlier version wrote larger images.
    settings.write_text(own.replace('"--size": "32"', '"--size": "224"'))
    code, err = make(source, data_dir)
    assert code == 2 and '--size was 224, and is 32' in err
    # Other images.
    settings.write_text(own.replace('"CIFAR-10": "that', '"CIFAR-10": "another'))
    code, err = make(source, data_dir)
    assert code == 2 and 'CIFAR-10 was another of SHA-256 ' in err
    settings.write_text(own)
    code, err = make(source, data_dir)
    assert code == 0 and '3 of 5 train shards are already finished' in err
    # After the number of images in all, those after each shard, also of the first run's.
    written_images = [number for what, number in told if what == 'writing train images']
    assert written_images == [750, 150, 300, 450, 750, 150, 300, 450, 600, 750]
    names = sorted(os.listdir(str(data_dir)))
    assert names == sorted(os.listdir(str(shards)))
    assert filecmp.cmpfiles(str(data_dir), str(shards), names, shallow=False) == (names, [], [])
    for name, moment in finished.items():
        assert name == 'conversion' or os.stat(str(data_dir / name)).st_mtime_ns == moment


def test_damaged_settings__are_refused(published: Published, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'conversion.json').write_text('[')
    code, err = make(published.folder, tmp_path)
    message = 'conversion.json: does not hold the settings of a conversion. Name a new folder.'
    assert code == 2 and message in err and os.listdir(str(tmp_path)) == ['conversion.json']


def test_full_disk__gives_a_message_and_the_command_resumes(published: Published, tmp_path: pathlib.Path) -> None:
    with largest_file(100_000):
        code, err = make(published.folder, tmp_path / 'data')
    assert code == 2 and f'{tmp_path}/data: cannot be written: ' in err and 'File too large' in err
    assert make(published.folder, tmp_path / 'data')[0] == 0


@pytest.mark.parametrize(
    ('option', 'expected'),
    [
        ('--train_shards=751', '--train_shards=751: must be at most --train_images=750.'),
        ('--validation_shards=0', '--validation_shards: 0: must be a whole number, at least 1'),
    ],
)
def test_values_out_of_range_are_refused(
    option: str, expected: str, published: Published, tmp_path: pathlib.Path
) -> None:
    code, err = make(published.folder, tmp_path / 'data', option)
    assert code == 2 and expected in err and not (tmp_path / 'data').exists()
