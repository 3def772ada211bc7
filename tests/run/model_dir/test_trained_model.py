"""Tests of finding a run's checkpoint and configuration for use on this machine."""

import dataclasses
import os
import shutil
from typing import Any

import pytest

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.run import history, trained_model
from inception_v3.run.checkpoints import CheckpointError
from tests.support.checkpoints import save_step


def start_in(folder: Any, config: Config, monkeypatch: Any) -> None:
    folder.mkdir()
    monkeypatch.chdir(str(folder))
    history.write_start(config, None)


def test_find__uses_the_cpu_and_the_data_of_the_last_start(tmp_path: Any, monkeypatch: Any) -> None:
    model_dir = str(tmp_path / 'model')
    os.mkdir(model_dir)
    config = Config(tpu='node', use_tpu=True, model_dir=model_dir, data_dir='data', intra_op_threads=3)
    # Settings of training alone.
    config = dataclasses.replace(
        config, train_steps=60, profile_steps='51,55', batch_norm='synchronized', batch_norm_group_size=4, init_from='x'
    )
    for name in ('first', 'second', 'third'):
        start_in(tmp_path / name, config, monkeypatch)
    save_step(model_dir, 3)
    save_step(model_dir, 4)
    monkeypatch.chdir(str(tmp_path))
    assert trained_model.find(model_dir).config.data_dir == 'data'
    for name in ('first', 'second'):
        (tmp_path / name / 'data').mkdir()
    found = trained_model.find(model_dir)
    assert (found.step, found.config.evaluated_weights) == (4, 'average')
    here = found.config
    assert (here.use_tpu, here.tpu, here.master, here.mode) == (False, None, '', 'eval')
    # The third folder has no data.
    assert (here.intra_op_threads, here.data_dir) == (0, str(tmp_path / 'second' / 'data'))
    assert trained_model.find(model_dir, 'model.ckpt-3').step == 3
    with pytest.raises(CheckpointError, match=r'--checkpoint=model\.ckpt-5: no checkpoint of this name'):
        trained_model.find(model_dir, 'model.ckpt-5')


@pytest.mark.parametrize('slash', ['', '/'])
def test_find__takes_the_data_of_the_run_around_the_folder_best(tmp_path: Any, monkeypatch: Any, slash: str) -> None:
    model_dir = tmp_path / 'model'
    (model_dir / 'best').mkdir(parents=True)
    start_in(tmp_path / 'start', Config(model_dir=str(model_dir), data_dir='data'), monkeypatch)
    (tmp_path / 'start' / 'data').mkdir()
    save_step(str(model_dir / 'best'), 3)
    shutil.copy(str(model_dir / 'config.json'), str(model_dir / 'best'))
    monkeypatch.chdir(str(tmp_path))
    assert trained_model.find(f'{model_dir}/best{slash}').config.data_dir == str(tmp_path / 'start' / 'data')


def test_restore__refuses_a_checkpoint_of_another_network(tmp_path: Any) -> None:
    save_step(str(tmp_path), 3)
    model = trained_model.TrainedModel(str(tmp_path / 'model.ckpt-3'), 3, Config(moving_average=False))
    tf.get_variable('weights', [2])
    refused = pytest.raises(CheckpointError, match=r'model\.ckpt-3: does not fit this run: weights is missing')
    with tf.Session() as session, refused:
        model.restore(session)
