"""Tests that the program gives the same results on emulated cores as on one device."""

import dataclasses
import os
import shutil
from typing import Any, Dict

import numpy as np
import pytest

from console.tensorflow_versions import tf
from inception_v3 import main
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks import layers
from inception_v3.run.history import read_evaluations
from tests.support.checkpoints import saved_variables
from tests.support.runs import make_small_config

CORES = 2
BATCH_PER_CORE = 8
STEPS = 3
LEARNING_RATE = 1e-6


def batches(params: Dict[str, Any]) -> tf.data.Dataset:
    """Yields the same images for every number of cores; their brightness differs strongly from core to core."""
    rng = np.random.RandomState(0)
    images = rng.uniform(-0.5, 0.5, [3 * CORES * BATCH_PER_CORE, 75, 75, 3]).astype(np.float32)
    images += np.repeat(np.tile(np.linspace(-1, 1, CORES), 3), BATCH_PER_CORE)[:, np.newaxis, np.newaxis, np.newaxis]
    labels = np.arange(len(images), dtype=np.int32) % 11
    dataset = tf.data.Dataset.from_tensor_slices((images.astype(np.float32), labels))
    return dataset.repeat().batch(params['batch_size'], drop_remainder=True)


@pytest.fixture
def without_dropout(monkeypatch: Any) -> None:
    """Removes dropout, whose masks on several cores differ from those on one device."""
    monkeypatch.setattr(layers, 'dropout', lambda inputs, keep, is_training: inputs)


@pytest.fixture
def one_device(digits_dir: str, tmp_path: Any, without_dropout: None, few_blocks: None) -> Config:
    """A run on one device after one step.

    The learning rate is low, because a new network amplifies rounding errors: on one device, the same batch in another
    order gives moments that agree to 1e-6, but gradients that agree only to 1e-2.
    """
    config = make_small_config(
        digits_dir,
        train_batch_size=CORES * BATCH_PER_CORE,
        model_dir=str(tmp_path / 'one'),
        batch_norm='synchronized',
        depth_multiplier=0.25,
        optimizer='sgd',
        learning_rate=LEARNING_RATE,
        skip_host_call=False,
        iterations=2,
        seed=1,
    )
    make_estimator(config).train(batches, max_steps=1)
    return config


def continued(config: Config, name: str, **changes: Any) -> Dict[str, np.ndarray]:
    """Resumes from the checkpoint of `config` with other settings, and returns the variables."""
    one = str(config.model_dir)
    model_dir = os.path.join(os.path.dirname(one), name)
    shutil.copytree(one, model_dir)
    changed = dataclasses.replace(config, model_dir=model_dir, **changes)
    make_estimator(changed).train(batches, max_steps=1 + STEPS)
    return saved_variables(model_dir)


def largest_difference(a: Dict[str, np.ndarray], b: Dict[str, np.ndarray], end: str) -> float:
    """The largest difference between variables whose names end with `end`, relative to values above 1."""
    assert set(a) == set(b)
    names = [name for name in a if name.endswith(end)]
    assert names
    return max(float(np.max(np.abs(a[name] - b[name]) / np.maximum(1, np.abs(b[name])))) for name in names)


def typical_difference(a: Dict[str, np.ndarray], b: Dict[str, np.ndarray], end: str) -> float:
    """The root mean square of the differences between variables whose names end with `end`."""
    squares = np.concatenate([np.square(a[name] - b[name]).ravel() for name in a if name.endswith(end)])
    return float(np.sqrt(squares.mean(dtype=np.float64)))


@pytest.mark.slow
def test_synchronized_cores__train_like_one_device(one_device: Config) -> None:
    tpu = {'use_tpu': True, 'tpu': f'emulated:{CORES}', 'num_shards': CORES}
    before = saved_variables(str(one_device.model_dir))
    alone = continued(one_device, 'alone')
    synchronized = continued(one_device, 'synchronized', **tpu)
    local = continued(one_device, 'local', batch_norm='local', **tpu)
    assert alone['global_step'] == synchronized['global_step'] == 1 + STEPS
    for end in ('/weights', '/beta', '/moving_mean', '/moving_variance', '/ExponentialMovingAverage'):
        # A convolution that sums up to 1,000 products has a relative error of about sqrt(1,000) * 2 ** -24 = 2e-6, and
        # 20 layers one after the other sqrt(20) times as much, 9e-6. A square has twice the error, 2e-5; the limit is
        # five times that. Weights follow the gradients at a rate of 1e-6, and means average the errors.
        limit = 1e-4 if end == '/moving_variance' else 1e-5
        assert largest_difference(alone, synchronized, end) < limit, end
        difference = typical_difference(alone, synchronized, end)
        assert typical_difference(alone, before, end) > 5 * difference, end
        assert typical_difference(alone, local, end) > 5 * difference, end


@pytest.mark.both
@pytest.mark.program
@pytest.mark.parametrize('transpose', [False, True])
def test_emulated_cores__train_with_bytes_as_one_device_does(
    digits_dir: str, tmp_path: Any, one_layer: None, transpose: bool
) -> None:
    def trained_on(cores: int, **changes: Any) -> Dict[str, np.ndarray]:
        model_dir = str(tmp_path / f'{cores} {changes}')
        config = make_small_config(
            digits_dir, model_dir=model_dir, train_batch_size=16, batch_norm='synchronized', seed=1, iterations=2
        )
        if cores:
            config = dataclasses.replace(config, use_tpu=True, tpu=f'emulated:{cores}', num_shards=cores)
        config = dataclasses.replace(config, **changes)
        make_estimator(config).train(InputPipeline(True, config), max_steps=2)
        return saved_variables(model_dir)

    one, floats = trained_on(0, transfer='uint8'), trained_on(0)
    several = trained_on(2, transfer='uint8', transpose_enabled=transpose)
    assert one.keys() == several.keys()
    for name, value in one.items():
        np.testing.assert_allclose(several[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    # The rounding to bytes has an effect, so the cores did receive bytes.
    assert largest_difference(one, floats, '/weights') > 10 * largest_difference(one, several, '/weights')


@pytest.mark.both
@pytest.mark.slow
def test_program__trains_evaluates_resumes_and_exports_on_emulated_cores(
    digits_dir: str, tmp_path: Any, capsys: Any, few_blocks: None
) -> None:
    model_dir = str(tmp_path / 'run')
    command = ['main', '--preset=digits', '--tpu=emulated:2x2', f'--data_dir={digits_dir}', f'--model_dir={model_dir}']
    command += ['--train_steps_per_eval=3', '--iterations=2', '--precision=bfloat16', '--batch_norm=synchronized']
    assert main.main([*command, '--train_steps=3', '--export_dir=']) == 0
    assert 'THE TPU IS EMULATED: 2 cores on 2 hosts' in capsys.readouterr().err
    export_dir = str(tmp_path / 'export')
    assert main.main([*command, '--train_steps=6', f'--export_dir={export_dir}']) == 0
    assert [(e.step, e.images) for e in read_evaluations(model_dir)] == [(3, 359), (6, 359)]
    kept = saved_variables(model_dir)
    assert not [name for name in kept if 'core_' in name], 'only variables of the first core are saved'
    assert {v.dtype for v in kept.values()} == {np.dtype(np.float32), np.dtype(np.int64)}
    (saved_model,) = os.listdir(export_dir)
    with tf.Session() as session:
        graph = tf.saved_model.load(session, ['serve'], os.path.join(export_dir, saved_model)).graph_def
    assert not [node.name for node in graph.node if node.attr['T'].type == tf.bfloat16.as_datatype_enum]
