"""The guide's program on one page, against the full program."""

import dataclasses
import os
from typing import Any, Dict
from unittest import mock

import numpy as np
import pytest

from examples import guide
from inception_v3.config import Config
from inception_v3.networks.registry import NETWORKS
from inception_v3.presets import PRESETS
from inception_v3.run.history import read_evaluations
from tests.support.checkpoints import saved_variables
from tests.support.runs import execute
from tests.support.tiny_network import TINY


def values_of(model_dir: str, step: int) -> Dict[str, np.ndarray]:
    return saved_variables(os.path.join(model_dir, f'model.ckpt-{step}'))


def check_equal(config: Config, folder: Any) -> None:
    """Runs ten steps of both programs."""
    ours = dataclasses.replace(config, model_dir=str(folder / 'guide'))
    found = guide.run(ours)
    full = dataclasses.replace(config, model_dir=str(folder / 'full'))
    execute(full)
    expected = values_of(str(full.model_dir), 10)
    values = values_of(str(ours.model_dir), 10)
    assert values.keys() == expected.keys()
    assert [name for name in values if not np.array_equal(values[name], expected[name])] == []
    # The averages differ from the weights, and both programs evaluate the averages.
    averages = [name for name in values if name.endswith('/ExponentialMovingAverage')]
    assert averages and not any(np.array_equal(values[name], values[name.rpartition('/')[0]]) for name in averages)
    evaluation = read_evaluations(str(full.model_dir))[-1]
    assert (found['top_1'], found['images']) == (pytest.approx(evaluation.top_1, abs=1e-6), 359)
    assert found['cross_entropy'] == pytest.approx(evaluation.cross_entropy, rel=1e-6)


@pytest.fixture
def config(small_config: Config) -> Config:
    # The auxiliary head needs 107 pixels.
    changes = {'train_steps': 10, 'batch_norm_decay': 0.5, 'learning_rate': 0.3, 'height': 107, 'width': 107}
    return dataclasses.replace(small_config, seed=3, intra_op_threads=1, **changes)


@pytest.mark.program
@pytest.mark.both
def test_guide__ten_steps_give_the_weights_of_the_full_program(config: Config, tmp_path: Any) -> None:
    with mock.patch.dict(NETWORKS, inception_v3=TINY), mock.patch.object(guide, 'inception_v3', TINY.build):
        check_equal(config, tmp_path)


def test_guide__trains_as_the_preset_does() -> None:
    changes = {'model_dir': 'runs/guide', 'export_dir': None, 'save_summary_steps': 100, 'seed': 1}
    assert Config(**{**PRESETS['digits'], **changes}) == guide.CONFIG
