"""The input pipeline's reader of tar shards."""

from typing import Any

import pytest

from tests.data.tar.readers import Reader


@pytest.fixture(scope='module')
def reader(tmp_path_factory: Any) -> Reader:
    return Reader(str(tmp_path_factory.mktemp('reader') / 'train-00000.tar'))
