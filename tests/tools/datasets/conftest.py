"""A folder of images, and the progress of conversions, for several test files."""

import contextlib
import pathlib
from typing import Any, Iterator, List, Tuple

import pytest

from tests.tools.datasets.image_folders import PHOTOS, save_class
from tools.datasets import conversion

Told = List[Tuple[str, Any]]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Five classes of ten images each, not split."""
    for photo in PHOTOS:
        save_class(tmp_path / 'images', photo, range(10))
    return tmp_path / 'images'


@pytest.fixture
def told(monkeypatch: Any) -> Told:
    """The progress that conversions report: the name of a part with its number of items, then the items done."""
    said: Told = []

    @contextlib.contextmanager
    def progress() -> Iterator[Any]:
        def start(what: str, total: Any) -> Any:
            said.append((what, total))
            return lambda done: said.append((what, done))

        yield start

    monkeypatch.setattr(conversion, 'progress', progress)
    return said
