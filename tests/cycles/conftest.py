"""Fixtures of whole runs of the real TPUEstimator on the CPU, on real images, with a network of one layer."""

import dataclasses
import shutil
from typing import Any

import pytest

from inception_v3.config import Config
from tests.support.runs import FinishedRun


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Saves time: the course of a run is the same for every network."""


@pytest.fixture
def copied(finished_run: FinishedRun, tmp_path: Any) -> Config:
    """A copy of the finished run, without export_dir and seed, that the test may change."""
    config = finished_run.config
    shutil.copytree(str(config.model_dir), tmp_path / 'model')
    return dataclasses.replace(
        config, model_dir=str(tmp_path / 'model'), export_dir=None, seed=None, intra_op_threads=0
    )
