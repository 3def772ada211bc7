"""Tests of the exported SavedModel of a run."""

import dataclasses
import glob
import os
import pathlib
from typing import Any, Callable, List

import numpy as np
import pytest

from compat import tf
from compat.errors import CheckpointError
from inception_v3.config import Config
from inception_v3.run.export import origin, saved_model
from inception_v3.run.trained_data import TrainedData
from tests.support.checkpoints import save_step, saved_variables
from tests.support.records import validation_set
from tests.support.runs import FinishedRun, evaluations, execute
from tests.support.saved_models import classify
from tools.weights.writing import write_checkpoint


@pytest.fixture
def exported_path(finished_run: FinishedRun) -> str:
    """The SavedModel of the finished run."""
    (path,) = glob.glob(os.path.join(str(finished_run.config.export_dir), '*'))
    return path


def test_saved_model__scores_as_the_evaluation_did(finished_run: FinishedRun, exported_path: str) -> None:
    config = finished_run.config
    encoded, labels = zip(*validation_set(config))
    outputs = classify(exported_path, list(encoded))
    evaluation = evaluations(config)[-1]
    assert (outputs['classes'] == labels).mean() == pytest.approx(evaluation.top_1)
    np.testing.assert_allclose(outputs['probabilities'].sum(1), 1, rtol=1e-5)
    names = [b'background', b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9']
    assert outputs['class_names'].tolist() == [names[label] for label in outputs['classes']]
    # The averages were exported, not the raw weights.
    exported = tf.train.load_checkpoint(os.path.join(exported_path, 'variables', 'variables'))
    trained = tf.train.load_checkpoint(os.path.join(str(config.model_dir), 'model.ckpt-5'))
    kernel = 'Logits/weights'
    average = f'{kernel}/ExponentialMovingAverage'
    assert not exported.has_tensor(kernel)
    np.testing.assert_array_equal(exported.get_tensor(average), trained.get_tensor(average))
    assert (trained.get_tensor(kernel) != trained.get_tensor(average)).any()


class FakeEstimator:
    """Exports an empty folder, always in the same second; `beside` is called in between."""

    def __init__(self, beside: Callable[[], Any] = lambda: None) -> None:
        self.checkpoints: List[str] = []
        self._beside = beside

    def export_saved_model(self, folder: str, receive: Any, checkpoint_path: str) -> bytes:
        self.checkpoints.append(checkpoint_path)
        path = os.path.join(folder, '1700000000')
        os.makedirs(os.path.join(path, 'variables'))
        for name in ('saved_model.pb', 'variables/variables.index', 'variables/variables.data-00000-of-00001'):
            pathlib.Path(path, name).write_bytes(b'')
        self._beside()
        return path.encode()


def runs_of_one_export_dir(tmp_path: Any) -> List[Config]:
    """Two runs whose newest checkpoints have different steps: 1 and 2."""
    runs = [Config(model_dir=str(tmp_path / name), export_dir=str(tmp_path / 'export')) for name in 'ab']
    for step, config in enumerate(runs, 1):
        save_step(str(config.model_dir), step)
    return runs


def test_export__takes_another_name_in_the_same_second(tmp_path: Any) -> None:
    estimator = FakeEstimator()
    runs = runs_of_one_export_dir(tmp_path)
    checkpoints = [f'{config.model_dir}/model.ckpt-{step}' for step, config in enumerate(runs, 1)]
    paths = [saved_model.export_saved_model(estimator, *of_run, TrainedData(None)) for of_run in zip(runs, checkpoints)]
    assert paths == [str(tmp_path / 'export' / name) for name in ('1700000000', '1700000001')]
    # No unfinished export is left.
    assert sorted(os.listdir(str(tmp_path / 'export'))) == ['1700000000', '1700000001']
    assert estimator.checkpoints == checkpoints


def test_export__of_one_run_by_two_commands_at_a_time_gives_two_models(tmp_path: Any) -> None:
    config, _ = runs_of_one_export_dir(tmp_path)
    save_step(str(config.model_dir), 2)

    def export(step: int, beside: Callable[[], Any] = lambda: None) -> str:
        checkpoint = f'{config.model_dir}/model.ckpt-{step}'
        return saved_model.export_saved_model(FakeEstimator(beside), config, checkpoint, TrainedData(None))

    found = origin.read(export(1, lambda: export(2)))
    assert found and found.step == 1
    assert sorted(os.listdir(str(tmp_path / 'export'))) == ['1700000000', '1700000001']


def test_export__that_fails_leaves_nothing(tmp_path: Any) -> None:
    config, _ = runs_of_one_export_dir(tmp_path)
    estimator = FakeEstimator(lambda: (_ for _ in ()).throw(ValueError('no space')))
    with pytest.raises(ValueError, match='no space'):
        saved_model.export_saved_model(estimator, config, f'{config.model_dir}/model.ckpt-1', TrainedData(None))
    assert os.listdir(str(tmp_path / 'export')) == []


def test_export__is_made_once_for_the_same_model(tmp_path: Any) -> None:
    estimator = FakeEstimator()
    config = runs_of_one_export_dir(tmp_path)[0]

    def exports(config: Config, *names: str) -> str:
        learned = TrainedData(None, imported_names=names or ('background', 'cat'))
        path = saved_model.export_saved_model(estimator, config, f'{config.model_dir}/model.ckpt-1', learned)
        return os.path.basename(path)

    assert [exports(config) for _ in range(3)] == ['1700000000'] * 3
    # Other weights, images or names make another model.
    assert exports(dataclasses.replace(config, moving_average=False)) == '1700000001'
    assert exports(dataclasses.replace(config, height=320)) == '1700000002'
    assert exports(config, 'background', 'dog') == '1700000003'
    # The same step of a second training in the same folder is another model, too.
    save_step(str(config.model_dir), 1, more=1.0)
    assert exports(config) == '1700000004'
    # A folder that lost its weights does not count as an export.
    os.remove(str(tmp_path / 'export/1700000004/variables/variables.index'))
    assert exports(config) == '1700000005'
    # An export of an earlier version, which does not turn images, is another model, too.
    path = str(tmp_path / 'export/1700000005')
    earlier = origin.read(path)
    assert earlier and earlier.has_images_as_viewed
    del earlier.settings['images_as_viewed']
    origin.write(path, earlier)
    assert not earlier.has_images_as_viewed
    assert exports(config) == '1700000006'
    assert len(estimator.checkpoints) == 7


def test_saved_model__carries_the_names_of_its_classes_and_a_card(
    finished_run: FinishedRun, exported_path: str
) -> None:
    extra = pathlib.Path(exported_path, 'assets.extra')
    assert (extra / 'labels.txt').read_text().split() == ['background', *'0123456789']
    card, top_1 = (extra / 'README.md').read_text(), f'{evaluations(finished_run.config)[-1].top_1:.2%}'
    texts = 'exported as SavedModel', 'moving averages', 'of step 5;', f'top-1 {top_1} of 359', '1,438 training', 'EXIF'
    assert all(text in card for text in texts)


def test_origin__of_a_runs_export_has_its_evaluation(
    finished_run: FinishedRun, exported_path: str, copied: Config, tmp_path: Any
) -> None:
    found = origin.read(exported_path)
    assert found
    evaluation = evaluations(finished_run.config)[-1]
    assert (found.model_dir, found.step, found.weights) == (finished_run.config.model_dir, 5, 'average')
    assert (found.top_1, found.images) == (evaluation.top_1, 359)
    assert str(found).endswith(f'step 5, average weights, top-1 {100 * evaluation.top_1:.2f}% of 359 validation images')
    os.remove(os.path.join(str(copied.model_dir), 'results.jsonl'))
    config = dataclasses.replace(copied, mode='train', export_dir=str(tmp_path / 'export'))
    first, second = execute(config), execute(config)
    (exported_path,) = glob.glob(str(tmp_path / 'export' / '*'))
    assert f'SavedModel  {exported_path}' in first and f'SavedModel  {exported_path}' in second
    assert 'accuracy unknown: this step has no evaluation' in str(origin.read(exported_path))


def test_run__removes_the_export_that_a_kill_left(copied: Config, tmp_path: Any, monkeypatch: Any) -> None:
    config = dataclasses.replace(copied, export_dir=str(tmp_path / 'export'))
    another = dataclasses.replace(config, model_dir=str(tmp_path / 'another'))
    left, of_another = (
        os.path.join(str(each.export_dir), f'{saved_model._unfinished_name(each)}-1/17') for each in (config, another)
    )
    os.makedirs(left)
    os.makedirs(of_another)
    present: List[bool] = []

    def look(*unused: Any) -> str:
        present.append(os.path.exists(left))
        return 'path'

    monkeypatch.setattr(saved_model, 'export_saved_model', look)
    assert 'SavedModel  path' in execute(config)
    assert present == [False] and os.path.exists(of_another)


def test_export__refuses_averages_that_the_checkpoint_lacks(copied: Config, tmp_path: Any) -> None:
    values = saved_variables(str(copied.model_dir))
    raw = {name: value for name, value in values.items() if not name.endswith('/ExponentialMovingAverage')}
    write_checkpoint(f'{copied.model_dir}/model.ckpt-5', raw)
    with pytest.raises(CheckpointError, match=r'model\.ckpt-5: has no moving averages'):
        execute(dataclasses.replace(copied, mode='train', export_dir=str(tmp_path / 'export')))
