"""A small ImageNet in archives."""

import pathlib

import pytest

from tests.data.convert.imagenet import archives as imagenet_archives
from tests.data.convert.imagenet.archives import Archives


@pytest.fixture
def archives(tmp_path: pathlib.Path) -> Archives:
    return imagenet_archives.make(tmp_path / 'in')
