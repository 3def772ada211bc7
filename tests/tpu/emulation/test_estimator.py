"""Tests that the program gives the same results on emulated cores as on one device."""

import dataclasses
import os
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf
from inception_v3 import main
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.evaluations import read_evaluations
from tests.support.checkpoints import saved_variables, trained
from tests.support.events import read_events
from tests.support.graphs import evaluate
from tests.support.runs import make_small_config


def largest_difference(a: Dict[str, np.ndarray], b: Dict[str, np.ndarray]) -> float:
    """The largest difference between weights."""
    return max(float(np.abs(a[name] - b[name]).max()) for name in a if name.endswith('/weights'))


def test_host_call__writes_the_mean_loss_of_all_cores(tmp_path: Any, one_layer: None) -> None:
    cores, batch = 2, 4
    emulated: Dict[str, Any] = {'use_tpu': True, 'tpu': f'emulated:{cores}', 'num_shards': cores, 'iterations': 2}
    config = make_small_config(
        '', use_data='fake', train_batch_size=batch, seed=1, skip_host_call=False, save_summary_steps=1
    )
    own = dataclasses.replace(config, **emulated, model_dir=str(tmp_path))
    random = np.random.RandomState(0)
    images = random.uniform(-1, 1, [batch, 75, 75, 3]).astype(np.float32)
    labels = np.array([0, 3, 7, 10], np.int32)

    def input_fn(params: Dict[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
        return dataset.batch(params['batch_size'], drop_remainder=True)

    make_estimator(own).train(input_fn, max_steps=2)
    written = read_events(str(tmp_path))
    losses = []
    for part in np.split(np.arange(batch), cores):
        with tf.Graph().as_default():
            params = {'config': dataclasses.replace(config, skip_host_call=True)}
            spec = inception_model_fn(tf.constant(images[part]), labels[part], tf.estimator.ModeKeys.TRAIN, params)
            losses.append(evaluate(spec.loss))
    assert abs(losses[0] - losses[1]) > 1e-3
    # In the first step, each core has the initial weights of the seed.
    assert written['loss'][0] == pytest.approx(np.mean(losses), rel=1e-6)
    assert {*written['loss']} == {0, 1} and written['loss'][1] != written['loss'][0]


@pytest.mark.program
def test_synchronized_cores__train_with_bytes_as_one_device_does(
    digits_dir: str, tmp_path: Any, one_layer: None
) -> None:
    def trained_on(cores: int, **changes: Any) -> Dict[str, np.ndarray]:
        model_dir = str(tmp_path / f'{cores} {changes}')
        flags = {'batch_norm': 'synchronized', 'seed': 1, 'iterations': 2, 'transfer': 'uint8', **changes}
        config = make_small_config(digits_dir, model_dir=model_dir, train_batch_size=16, **flags)
        if cores:
            config = dataclasses.replace(config, use_tpu=True, tpu=f'emulated:{cores}', num_shards=cores)
        return trained(config, InputPipeline(is_training=True, config=config), 2)

    one = trained_on(0)
    for transpose in (False, True):
        several = trained_on(2, transpose_enabled=transpose)
        assert one.keys() == several.keys() and one['global_step'] == 2
        for name, value in one.items():
            np.testing.assert_allclose(several[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    # Rounding to bytes has an effect, so the cores did receive bytes; moments of all cores have an effect, too.
    for other in (trained_on(0, transfer='float'), trained_on(2, batch_norm='local')):
        assert largest_difference(one, other) > 10 * largest_difference(one, several)


@pytest.mark.both
@pytest.mark.program
def test_program__trains_evaluates_resumes_and_exports_on_emulated_cores(
    digits_dir: str, tmp_path: Any, capsys: Any, one_layer: None
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
