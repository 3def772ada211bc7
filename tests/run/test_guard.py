"""Tests of the guard of a run."""

import dataclasses
from typing import Any

import pytest

from compat.errors import CommandError
from inception_v3.config import Config
from inception_v3.run.evaluations import (
    RESULTS_FILE,
)
from inception_v3.run.starts import STARTS_FILE
from tests.support.runs import execute


@pytest.mark.parametrize('name', [RESULTS_FILE, STARTS_FILE])
def test_run_that_cannot_write_its_records__ends_before_training(
    name: str, one_layer: None, small_config: Config, tmp_path: Any
) -> None:
    (tmp_path / name).mkdir()
    message = f'{name}: cannot be written: it is a folder; only files are replaced. Move it away'
    with pytest.raises(CommandError, match=message):
        execute(dataclasses.replace(small_config, model_dir=str(tmp_path), train_steps=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]
