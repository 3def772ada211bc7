"""Tests of the exported SavedModel of a run."""

import dataclasses
import glob
import os
from typing import Any, List

import numpy as np
import pytest
import tensorflow as tf

from inception_v3 import cycles, export
from inception_v3.config import Config
from inception_v3.model_dir.checkpoints import CheckpointError
from tests.support.records import validation_set
from tests.support.runs import FinishedRun, evaluations, execute
from tests.support.saved_models import classify


@pytest.mark.parametrize('transpose_enabled', [False, True])
def test_saved_model__scores_as_the_evaluation_did(
    finished_run: FinishedRun, copied: Config, tmp_path: Any, transpose_enabled: bool
) -> None:
    config = finished_run.config
    if transpose_enabled:
        export_dir = str(tmp_path / 'export')
        config = dataclasses.replace(copied, mode='eval', transpose_enabled=True, export_dir=export_dir)
        execute(config)
    (saved_model,) = glob.glob(os.path.join(str(config.export_dir), '*'))
    encoded, labels = zip(*validation_set(config))
    outputs = classify(saved_model, list(encoded))
    evaluation = evaluations(config)[-1]
    assert (outputs['classes'] == labels).mean() == pytest.approx(evaluation.top_1)
    np.testing.assert_allclose(outputs['probabilities'].sum(1), 1, rtol=1e-5)
    names = [b'background', b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9']
    assert outputs['class_names'].tolist() == [names[label] for label in outputs['classes']]
    # The averages were exported, not the raw weights.
    exported = tf.train.load_checkpoint(os.path.join(saved_model, 'variables', 'variables'))
    trained = tf.train.load_checkpoint(os.path.join(str(config.model_dir), 'model.ckpt-5'))
    kernel = 'Logits/weights'
    average = f'{kernel}/ExponentialMovingAverage'
    assert not exported.has_tensor(kernel)
    np.testing.assert_array_equal(exported.get_tensor(average), trained.get_tensor(average))
    assert (trained.get_tensor(kernel) != trained.get_tensor(average)).any()


class FakeEstimator:
    """Exports an empty folder, always in the same second."""

    def __init__(self) -> None:
        self.checkpoints: List[str] = []

    def export_saved_model(self, folder: str, receive: Any, checkpoint_path: str) -> bytes:
        self.checkpoints.append(checkpoint_path)
        path = os.path.join(folder, '1700000000')
        os.makedirs(path)
        return path.encode()


def test_export__takes_another_name_in_the_same_second(tmp_path: Any) -> None:
    estimator = FakeEstimator()
    runs = [Config(model_dir=str(tmp_path / name), export_dir=str(tmp_path / 'export')) for name in 'ab']
    paths = [export.export_saved_model(estimator, config, f'{config.model_dir}/model.ckpt-3') for config in runs]
    assert paths == [str(tmp_path / 'export' / name) for name in ('1700000000', '1700000001')]
    # Nothing is left of the unfinished exports.
    assert sorted(os.listdir(str(tmp_path / 'export'))) == ['1700000000', '1700000001']
    assert estimator.checkpoints == [f'{tmp_path}/a/model.ckpt-3', f'{tmp_path}/b/model.ckpt-3']


def test_remove_unfinished_export__leaves_those_of_other_runs(tmp_path: Any) -> None:
    first, second = (Config(model_dir=str(tmp_path / name), export_dir=str(tmp_path / 'export')) for name in 'ab')
    for config in (first, second):
        os.makedirs(os.path.join(export._unfinished_folder(config), '17'))
    export.remove_unfinished_export(first)
    assert os.listdir(str(tmp_path / 'export')) == [os.path.basename(export._unfinished_folder(second))]


def test_run__removes_the_export_that_a_kill_left(copied: Config, tmp_path: Any, monkeypatch: Any) -> None:
    config = dataclasses.replace(copied, export_dir=str(tmp_path / 'export'))
    left = os.path.join(export._unfinished_folder(config), '17')
    os.makedirs(left)
    present: List[bool] = []

    def look(*unused: Any) -> str:
        present.append(os.path.exists(left))
        return 'path'

    monkeypatch.setattr(cycles, 'export_saved_model', look)
    assert 'SavedModel  path' in execute(config)
    assert present == [False]


def test_export__refuses_averages_that_the_checkpoint_lacks(copied: Config, tmp_path: Any) -> None:
    raw = dataclasses.replace(
        copied, mode='train', moving_average=False, train_steps=1, model_dir=str(tmp_path / 'raw')
    )
    execute(raw)
    with pytest.raises(CheckpointError, match=r'model\.ckpt-1: has no moving averages'):
        execute(dataclasses.replace(raw, moving_average=True, export_dir=str(tmp_path / 'export')))
