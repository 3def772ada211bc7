"""Data sets for several test files: a folder of images, and the digits as tar shards."""

import pathlib
from typing import Any

import pytest

from data.convert.tar_shards import conversion as tar_shards
from tests.data.image_folders import PHOTOS, save_class
from tests.support.shared import once


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Five classes of ten images each, not split."""
    for photo in PHOTOS:
        save_class(tmp_path / 'images', photo, range(10))
    return tmp_path / 'images'


@pytest.fixture(scope='session')
def tar_dir(digits_dir: str, tmp_path_factory: Any) -> str:
    """The digits as tar shards."""
    return once(tmp_path_factory, 'digits-tar', lambda folder: tar_shards.convert(digits_dir, folder, 0, print))
