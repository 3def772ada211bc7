"""Tests of finding a run's checkpoint and configuration for use on this machine."""

import dataclasses
import os
from typing import Any

import pytest

from compat import tf
from compat.errors import CheckpointError
from inception_v3.config import Config
from inception_v3.run.evaluations import changed_since_training
from tests.support.checkpoints import save_step
from tests.support.recorded import write_start
from tools import trained_model


def test_find__uses_the_cpu(tmp_path: Any) -> None:
    model_dir = str(tmp_path / 'model')
    os.mkdir(model_dir)
    config = Config(tpu='node', use_tpu=True, model_dir=model_dir, data_dir='data', intra_op_threads=3)
    # Settings for training only.
    config = dataclasses.replace(
        config, train_steps=60, profile_steps='51,55', batch_norm='synchronized', batch_norm_group_size=4, init_from='x'
    )
    write_start(config, None)
    save_step(model_dir, 3)
    save_step(model_dir, 4)
    found = trained_model.find(model_dir)
    assert (found.step, found.config.evaluated_weights) == (4, 'average')
    here = found.config
    assert (here.use_tpu, here.tpu, here.master, here.mode) == (False, None, '', 'eval')
    assert (here.intra_op_threads, here.data_dir) == (0, 'data')
    assert trained_model.find(model_dir, 'model.ckpt-3').step == 3
    with pytest.raises(CheckpointError, match=r'--checkpoint=model\.ckpt-5: no checkpoint of this name'):
        trained_model.find(model_dir, 'model.ckpt-5')


def test_find__has_the_settings_that_the_checkpoint_was_trained_with(tmp_path: Any) -> None:
    model_dir = str(tmp_path)
    first = Config(model_dir=model_dir, data_dir='old', preprocessing='vgg', seed=4, moving_average=False)
    write_start(first, None)
    save_step(model_dir, 3)
    # Resumed with other flags, after the data set has moved.
    write_start(Config(model_dir=model_dir, data_dir='new', data_format='tar', seed=5), None)
    save_step(model_dir, 4)
    found = trained_model.find(model_dir, 'model.ckpt-3').config
    assert (found.preprocessing, found.seed, found.evaluated_weights) == ('vgg', 4, 'raw')
    assert (found.data_dir, found.data_format) == ('new', 'tar')
    found = trained_model.find(model_dir).config
    assert (found.preprocessing, found.seed, found.evaluated_weights) == ('inception', 5, 'average')
    changed = changed_since_training(found, None, str(tmp_path / 'model.ckpt-3'))
    assert changed == ('preprocessing: vgg -> inception', 'moving_average: False -> True')
    assert not changed_since_training(found, None, str(tmp_path / 'model.ckpt-4'))


def test_restore__refuses_a_checkpoint_of_another_network(tmp_path: Any) -> None:
    save_step(str(tmp_path), 3)
    model = trained_model.TrainedModel(str(tmp_path / 'model.ckpt-3'), 3, Config(moving_average=False))
    tf.get_variable('weights', [2])
    tf.get_variable('biases', [3])
    refused = pytest.raises(CheckpointError, match=r'ckpt-3: does not fit .*biases is missing.* weights is missing')
    with tf.Session() as session, refused:
        model.restore(session)
