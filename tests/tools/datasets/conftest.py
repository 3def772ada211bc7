"""A folder of images for several test files."""

import pathlib

import pytest

from tests.tools.datasets.image_folders import PHOTOS, save_class


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Five classes of ten images each, not split."""
    for photo in PHOTOS:
        save_class(tmp_path / 'images', photo, range(10))
    return tmp_path / 'images'
