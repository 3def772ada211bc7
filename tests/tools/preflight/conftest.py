"""Fixtures of the preflight's tests."""

import contextlib
import dataclasses
from typing import Any, List

import pytest

from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from tests.support.preflights import SMALL
from tools.preflight import checks, graphs


@pytest.fixture
def without_graphs(monkeypatch: Any) -> None:
    """Leaves out the checks of the graphs, in tests of what a preflight checks before."""
    monkeypatch.setattr(graphs, 'check', lambda *arguments: None)
    # The folders that graphs are built with.
    monkeypatch.setattr(checks, '_stand_in', lambda *arguments: contextlib.nullcontext(('data', 'model')))


@pytest.fixture
def without_files(monkeypatch: Any) -> None:
    """Builds graphs that make up their images, in tests of what does not depend on the reading of files.

    The shapes of a batch are the same. A host's pipeline of files has 500 operations.
    """

    def made_up(is_training: bool, config: Config) -> InputPipeline:
        return InputPipeline(is_training, dataclasses.replace(config, use_data='fake'))

    monkeypatch.setattr(graphs, 'InputPipeline', made_up)


@pytest.fixture
def reachable(tmp_path: Any) -> List[str]:
    """Flags of a v2-8 at a loopback address, which can reach this machine's folders."""
    return [*SMALL, '--topology=v2-8', '--master=grpc://127.0.0.1:8470', f'--model_dir={tmp_path}/model']
