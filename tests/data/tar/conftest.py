"""The input pipeline's reader of tar shards."""

from typing import Any
from unittest import mock

import pytest

from data.tar import reader as tar_reader
from tests.data.tar.readers import Reader


@pytest.fixture(scope='session', params=[tar_reader.PIECE, 700], ids=['one window', 'windows of few blocks'])
def reader(request: Any, tmp_path_factory: Any) -> Reader:
    # The second size is no multiple of a block: headers, contents and the end lie across pieces in all ways.
    with mock.patch.object(tar_reader, 'PIECE', request.param):
        return Reader(str(tmp_path_factory.mktemp('reader') / 'train-00000.tar'))
