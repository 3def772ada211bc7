"""A small CIFAR-10, as published and as tar shards."""

import pathlib
from typing import Any, Iterator
from unittest import mock

import pytest

from data.convert.cifar10 import conversion as cifar10_conversion
from tests.data.convert.cifar10 import archives as cifar10_archives
from tests.data.convert.cifar10.archives import BATCH, Published, make


@pytest.fixture(scope='module', autouse=True)
def _small_batches() -> Iterator[None]:
    with mock.patch.object(cifar10_conversion, '_BATCH_IMAGES', BATCH):
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
    assert make(published.paths['python'], data_dir)[0] == 0
    return data_dir
