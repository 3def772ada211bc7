"""The description of a data set: round trip, refusal of invalid ones, and the fingerprint of its images."""

import dataclasses
import json
import pathlib
import re
from typing import Any

import pytest

from compat.errors import CommandError
from data import dataset_info
from data.dataset_info import DatasetInfo
from data.records import DataError
from tests.data.written_records import written
from tests.support.commands import largest_file
from tools.datasets import fingerprints
from tools.datasets.fingerprints import SplitFingerprint

INFO = DatasetInfo('fotos', 'a café', 1281167, 50000, 3, ['background', 'Hund', 'Kätzchen'], 'a1b2')


def write(folder: pathlib.Path, content: bytes) -> pathlib.Path:
    path = folder / 'dataset.json'
    path.write_bytes(content)
    return path


def test_description__is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    INFO.write(str(tmp_path))
    assert dataset_info.read(str(tmp_path)) == INFO
    assert json.loads((tmp_path / 'dataset.json').read_text()) == {
        'name': 'fotos',
        'source': 'a café',
        'train_images': 1281167,
        'validation_images': 50000,
        'num_classes': 3,
        'class_names': ['background', 'Hund', 'Kätzchen'],
        'fingerprint': 'a1b2',
        'validation_records_per_file': [],
        'train_images_per_class': [],
    }
    # It may begin with a byte order mark.
    write(tmp_path, (tmp_path / 'dataset.json').read_text().encode('utf-8-sig'))
    assert dataset_info.read(str(tmp_path)) == INFO


@pytest.mark.parametrize(('images', 'counts'), [(6, [3, 1, 2]), (7, [])])
def test_description__counts_the_validation_records_that_it_describes(
    tmp_path: pathlib.Path, images: int, counts: Any
) -> None:
    written(tmp_path, 'train', [5])
    written(tmp_path, 'validation', [3, 1, 2])
    dataclasses.replace(INFO, validation_images=images).write(str(tmp_path))
    info = dataset_info.read(str(tmp_path))
    assert info is not None and info.validation_records_per_file == counts


def test_description__may_lack_a_fingerprint_or_be_missing(tmp_path: pathlib.Path) -> None:
    write(tmp_path, json.dumps(without('fingerprint')).encode())
    assert dataset_info.read(str(tmp_path)) == dataclasses.replace(INFO, fingerprint='')
    assert dataset_info.read(str(tmp_path / 'nowhere')) is None


def without(field: str) -> Any:
    return {name: value for name, value in vars(INFO).items() if name != field}


@pytest.mark.parametrize(
    'content',
    [
        *(b'', b'{"name": "cut sho', b'\xff\xfe\x00not UTF-8', b'[' * 100_000),
        json.dumps(without('train_images')).encode(),
        json.dumps({**vars(INFO), 'test_images': 3}).encode(),
        json.dumps({**vars(INFO), 'train_images': True}).encode(),
    ],
)
def test_invalid_description__is_refused_with_its_path(tmp_path: pathlib.Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=f'{re.escape(str(path))}: not a valid description of a data set') as error:
        dataset_info.read(str(tmp_path))
    assert 'name, source, train_images, validation_images, num_classes, class_names' in str(error.value)


@pytest.mark.parametrize(
    ('change', 'problem'),
    [
        ({}, None),
        ({'num_classes': 1, 'class_names': ['background']}, 'there must be training images, and a class besides'),
        ({'validation_images': -1}, 'there must be training images, and a class besides'),
        ({'validation_images': 0}, None),
        ({'train_images': 2**31}, 'a split has more than 2,147,483,647 images'),
        ({'train_images': 2**31 - 1, 'validation_images': 2**31 - 1}, None),
        ({'num_classes': 4}, '3 names for 4 classes'),
        ({'source': '\ud800'}, "'utf-8' codec can't encode"),
        ({'class_names': ['background', 'cat', 1]}, "class_names is ['background', 'cat', 1]"),
        ({'source': None}, 'source is None'),
        ({'validation_records_per_file': [25_000, 0, 25_000]}, None),
        ({'validation_records_per_file': [50_001, -1]}, 'validation_records_per_file is not for 50,000 images'),
        ({'validation_records_per_file': [49_999, True]}, 'validation_records_per_file is [49999, True]'),
        ({'train_images_per_class': [0, 1_281_160, 7]}, None),
        ({'train_images_per_class': [0, 1_281_160, 8]}, 'train_images_per_class is not for 1,281,167 images of 3'),
        ({'train_images_per_class': [0, 1_281_168, -1]}, 'train_images_per_class is not for 1,281,167 images of 3'),
        ({'train_images_per_class': [1_281_160, 7]}, 'train_images_per_class is not for 1,281,167 images of 3'),
    ],
)
def test_problem__is_the_one_that_reading_would_name(tmp_path: pathlib.Path, change: Any, problem: Any) -> None:
    info = dataclasses.replace(INFO, **change)
    assert str(info.problem()).startswith(str(problem))
    info.write(str(tmp_path))
    if problem:
        with pytest.raises(DataError, match=re.escape(f'not a valid description of a data set ({problem}')):
            dataset_info.read(str(tmp_path))
    else:
        assert dataset_info.read(str(tmp_path)) == info


def test_counts_of_classes__are_known_only_if_those_of_all_images_are() -> None:
    part = SplitFingerprint().with_image(2, b'a').with_image(1, b'b') + SplitFingerprint().with_image(2, b'c')
    assert part.images_of(4) == [0, 1, 2, 0] and part.images_of(2) == []
    # Reports of earlier versions have no labels.
    assert (part + SplitFingerprint(1, 7)).images_of(4) == []
    info = fingerprints.described('mine', 'here', ['cat', 'dog'], part, SplitFingerprint())
    assert (info.train_images, info.train_images_per_class) == (3, [0, 1, 2])


def test_a_description_that_cannot_be_read_is_refused_by_its_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'dataset.json').mkdir()
    with pytest.raises(CommandError, match=r'dataset\.json: is a folder; only regular files are read'):
        dataset_info.read(str(tmp_path))


def test_a_full_disk_is_a_data_error_that_names_the_file(tmp_path: pathlib.Path) -> None:
    with largest_file(8), pytest.raises(DataError, match=r'dataset\.json: cannot be written: .*too large'):
        INFO.write(str(tmp_path))
