"""A small CIFAR-10, as published and as tar shards."""

import pathlib
from typing import Any, Iterator
from unittest import mock

import pytest

from tests.tools.datasets.cifar10 import archives as cifar10_archives
from tests.tools.datasets.cifar10.archives import BATCH, Published, make
from tools.datasets.cifar10 import conversion as cifar10_conversion


@pytest.fixture(scope='module', autouse=True)
def _small_batches() -> Iterator[None]:
    # 60 images a batch, of which TensorFlow encodes 70 in a call.
    with mock.patch.multiple(cifar10_conversion, _BATCH_IMAGES=BATCH, _ENCODED_AT_ONCE=70):
        yield


@pytest.fixture(scope='module')
def published(tmp_path_factory: Any) -> Published:
    images = cifar10_archives.cut_out(BATCH)
    folder = cifar10_archives.write_binary(tmp_path_factory.mktemp('published'), images)
    return Published(images, folder, cifar10_archives.pack(folder))


@pytest.fixture(scope='module')
def shards(published: Published, tmp_path_factory: Any) -> pathlib.Path:
    """The shards of the folder."""
    data_dir = tmp_path_factory.mktemp('shards') / 'data'
    assert make(published.folder, data_dir)[0] == 0
    return data_dir
