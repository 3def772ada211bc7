"""Tests of the arguments of a run's TPUEstimator, without a run."""

import dataclasses
import os
import subprocess
import sys
from typing import Any, Dict

import pytest

from compat import tf
from data.records import DataError
from inception_v3.config import Config
from inception_v3.estimator import arguments_of, make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.moving_average import LoadEMAHook
from inception_v3.networks.registry import NETWORKS
from inception_v3.seeding import session_config
from inception_v3.tpu import topology
from tests.support.runs import ONE_LAYER

EMULATED = Config(
    tpu='emulated:4',
    use_tpu=True,
    num_shards=4,
    train_batch_size=64,
    eval_batch_size=32,
    iterations=7,
    save_checkpoints_secs=99,
    save_summary_steps=11,
    model_dir='m',
)


def test_estimator__has_the_batches_cores_and_loops_of_the_flags() -> None:
    arguments = arguments_of(EMULATED, '', class_names=('a', 'b'))
    assert (arguments['train_batch_size'], arguments['eval_batch_size']) == (64, 32)
    assert arguments['params'] == {'config': EMULATED, 'class_names': ['a', 'b']}
    assert arguments['use_tpu'] and not arguments['export_to_tpu']
    run_config = arguments['config']
    # A run's own hooks write checkpoints and summaries instead.
    assert (run_config.save_checkpoints_secs, run_config.save_checkpoints_steps) == (None, None)
    assert (run_config.model_dir, run_config.save_summary_steps) == ('m', 0)
    assert (run_config.tpu_config.iterations_per_loop, run_config.tpu_config.num_shards) == (7, 4)


@pytest.mark.parametrize(('tpu', 'hosts'), [('emulated:8', 1), ('emulated:8x2', 2)])
def test_estimator__evaluates_on_every_host(tpu: str, hosts: int) -> None:
    config = dataclasses.replace(EMULATED, tpu=tpu, num_shards=8)
    assert topology.hosts_of(config) == hosts
    inputs = tf.estimator.tpu.InputPipelineConfig
    tpu_config = arguments_of(config, '')['config'].tpu_config
    assert tpu_config.per_host_input_for_training == inputs.PER_HOST_V2
    assert tpu_config.eval_training_input_configuration != inputs.SLICED


def test_estimator__has_the_threads_of_the_run() -> None:
    run_config = make_estimator(
        Config(use_tpu=False, model_dir='m', intra_op_threads=3, log_device_placement=True)
    ).config
    assert run_config.tpu_config.num_shards is None
    session = run_config.session_config
    assert session.allow_soft_placement and session.log_device_placement and session.intra_op_parallelism_threads == 3
    # With a seed, sums keep their order.
    for seed, is_off in ((None, False), (0, True)):
        rewriting = session_config(Config(seed=seed)).graph_options.rewrite_options
        assert (rewriting.arithmetic_optimization == rewriting.OFF) == is_off
    for layout in ('auto', 'NHWC'):
        rewriting = session_config(Config(layout=layout)).graph_options.rewrite_options
        assert (rewriting.layout_optimizer == rewriting.OFF) == (layout == 'NHWC')
    # On a CPU, graphs are not optimized at all.
    devices: Dict[str, Any] = {'CPU': {'use_tpu': False}, 'TPU': {}, 'GPU': {'use_tpu': False, 'accelerator': 'gpu'}}
    for device, flags in devices.items():
        rewriting = session_config(Config(**flags)).graph_options.rewrite_options
        assert rewriting.disable_meta_optimizer == (device == 'CPU'), device


def test_estimator__connects_to_the_master() -> None:
    config = Config(use_tpu=True, master='grpc://10.0.0.2:8470', model_dir='gs://b/m', data_dir='gs://b/d')
    assert make_estimator(config).config.master == 'grpc://10.0.0.2:8470'
    assert make_estimator(dataclasses.replace(config, use_tpu=False, model_dir='m')).config.master == ''


def guide_cycles(model_dir: str) -> None:
    """The cycles as printed in the guide: documented names and defaults, and the data set in the working folder."""
    inception_classifier = tf.estimator.tpu.TPUEstimator(
        model_fn=inception_model_fn,
        use_tpu=False,
        config=tf.estimator.tpu.RunConfig(model_dir=model_dir),
        params={},
        train_batch_size=2,
        eval_batch_size=64,
    )
    eval_hooks = [LoadEMAHook(model_dir)]
    for cycle in range(2):
        tf.logging.info('Starting training cycle %d.', cycle)
        inception_classifier.train(input_fn=InputPipeline(True), steps=1)
        tf.logging.info('Starting evaluation cycle %d .', cycle)
        eval_results = inception_classifier.evaluate(input_fn=InputPipeline(False), steps=1, hooks=eval_hooks)
        tf.logging.info('Evaluation results: %s', eval_results)
        assert (eval_results['global_step'], eval_results['images']) == (cycle + 1, 64)
    # The evaluations above used the averages. This one uses the weights, reads every validation image, and ends.
    weights = inception_classifier.evaluate(input_fn=InputPipeline(False))
    assert weights['images'] == 359 and weights['cross_entropy'] != eval_results['cross_entropy']


@pytest.mark.program
@pytest.mark.both
def test_guide__its_cycles_train_evaluate_and_log(digits_dir: str, tmp_path: Any) -> None:
    # The level is set before our modules load TensorFlow, which must not change it.
    code = "import logging, runpy; logging.getLogger('tensorflow').setLevel(20); "
    code += "runpy.run_module('tests.test_estimator', run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, '-c', code, digits_dir, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and 'Logging error' not in done.stderr, done.stderr
    lines = [line.partition('{')[0] for line in done.stderr.splitlines() if ' cycle ' in line or ' results: ' in line]
    of_cycle = ('Starting training cycle {}.', 'Starting evaluation cycle {} .', 'Evaluation results: ')
    assert lines == ['INFO:tensorflow:' + line.format(cycle) for cycle in range(2) for line in of_cycle]

    shapes = dict(tf.train.list_variables(str(tmp_path)))
    assert shapes['Logits/biases'] == [1001]
    assert {'Logits/biases/ExponentialMovingAverage', 'Logits/biases/RMSProp'} <= {*shapes}


def test_input_pipeline__without_data_set_names_the_flag(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match='--data_dir='):
        InputPipeline(True)({'batch_size': 1})


if __name__ == '__main__':
    NETWORKS['inception_v3'] = ONE_LAYER
    os.chdir(sys.argv[1])
    guide_cycles(sys.argv[2])
