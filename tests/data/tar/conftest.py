"""The input pipeline's reader of tar shards."""

from typing import Any
from unittest import mock

import pytest

from data.tar import reader as tar_reader
from tests.data.tar.readers import Reader


@pytest.fixture(
    scope='session',
    params=[(tar_reader.PIECE, tar_reader._CHUNK), (700, 100)],
    ids=['one window', 'windows of few blocks'],
)
def reader(request: Any, tmp_path_factory: Any) -> Reader:
    # The second size is no multiple of a block: headers, contents and the end lie across pieces in all ways.
    piece, chunk = request.param
    with mock.patch.multiple(tar_reader, PIECE=piece, _CHUNK=chunk):
        return Reader(str(tmp_path_factory.mktemp('reader') / 'train-00000.tar'))
