"""The input pipeline's reader of tar shards."""

from typing import Any
from unittest import mock

import pytest

from data.tar import reader as tar_reader
from tests.data.tar.readers import Reader


@pytest.fixture(scope='session')
def reader(tmp_path_factory: Any) -> Reader:
    # Windows of few blocks, and no whole ones: headers, contents and the end lie across pieces in all ways.
    with mock.patch.multiple(tar_reader, PIECE=700, _CHUNK=100):
        return Reader(str(tmp_path_factory.mktemp('reader') / 'train-00000.tar'))
