"""The input pipeline's readers of tar shards."""

from typing import Any

import pytest

from data.tar.layout import DOCUMENTED_LABEL, Label, label_of
from tests.data.tar.readers import Reader
from tests.support.tiers import further


def _reader(tmp_path_factory: Any, label: Label) -> Reader:
    return Reader(str(tmp_path_factory.mktemp('reader') / 'train-00000.tar'), label)


@pytest.fixture(scope='session')
def reader(tmp_path_factory: Any) -> Reader:
    return _reader(tmp_path_factory, DOCUMENTED_LABEL)


@pytest.fixture(scope='session', params=[further('txt'), 'json:label'])
def labelled_reader(request: Any, tmp_path_factory: Any) -> Reader:
    return _reader(tmp_path_factory, label_of(request.param))
