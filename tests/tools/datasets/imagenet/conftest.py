"""A small ImageNet in archives."""

import pathlib

import pytest

from tests.tools.datasets.imagenet import archives as imagenet_archives
from tests.tools.datasets.imagenet.archives import Archives


@pytest.fixture
def archives(tmp_path: pathlib.Path) -> Archives:
    return imagenet_archives.make(tmp_path / 'in')
