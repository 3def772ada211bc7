"""Fixtures of whole runs of the real TPUEstimator on the CPU, on real images, with a network of one layer."""

import dataclasses
import shutil
from typing import Any, Tuple
from unittest import mock

import pytest

from inception_v3.config import Config
from inception_v3.networks.registry import NETWORKS
from tests.support.runs import ONE_LAYER, execute, make_small_config


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Saves time: the course of a run is the same for every network."""


@pytest.fixture(scope='session')
def finished(digits_dir: str, tmp_path_factory: Any) -> Tuple[Config, str]:
    """A finished run, for reading only, and its summary. It has three cycles, which end at steps 2, 4 and 5."""
    folder = tmp_path_factory.mktemp('finished')
    config = make_small_config(
        digits_dir,
        model_dir=str(folder / 'model'),
        export_dir=str(folder / 'export'),
        learning_rate=0.02,
        batch_norm_decay=0.1,
        moving_average_decay=0.5,
        train_steps=5,
        train_steps_per_eval=2,
        skip_host_call=False,
        save_summary_steps=2,
    )
    # The fixture `one_layer` does not apply here: session fixtures are set up before the fixtures of tests.
    with mock.patch.dict(NETWORKS, inception_v3=ONE_LAYER):
        return config, execute(config)


@pytest.fixture
def copied(finished: Tuple[Config, str], tmp_path: Any) -> Config:
    """A copy of the finished run, without export_dir, that the test may change."""
    config, _ = finished
    shutil.copytree(str(config.model_dir), tmp_path / 'model')
    return dataclasses.replace(config, model_dir=str(tmp_path / 'model'), export_dir=None)
