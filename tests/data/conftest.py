"""Data sets for several test files: a folder of images, and some of the digits as records and as tar shards."""

import pathlib
from typing import Any

import pytest

from tests.support.shared import once
from tests.tools.datasets.image_folders import PHOTOS, save_class
from tools.datasets import digits
from tools.datasets.tar_shards import conversion as tar_shards


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Five classes of ten images each, not split."""
    for photo in PHOTOS:
        save_class(tmp_path / 'images', photo, range(10))
    return tmp_path / 'images'


@pytest.fixture(scope='session')
def few_digits_dir(tmp_path_factory: Any) -> str:
    """A data set of two digits with 40 training images in 8 files, and 73 validation images in 4."""
    return once(tmp_path_factory, 'few-digits', lambda folder: digits.build(folder, (3, 7), 20))


@pytest.fixture(scope='session')
def tar_dir(few_digits_dir: str, tmp_path_factory: Any) -> str:
    """The two digits as tar shards."""
    return once(tmp_path_factory, 'digits-tar', lambda folder: tar_shards.convert(few_digits_dir, folder, 0, print))
