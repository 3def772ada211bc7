"""Tests of the training step that a preflight compiles with XLA and runs."""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from compat import tf
from inception_v3 import model_fn
from inception_v3.config import Config
from tests.support.graphs import evaluate
from tests.support.preflights import FAKE, errors_of
from tests.support.tiers import further
from tools.preflight import graphs


@pytest.fixture(autouse=True)
def _own_xla_flags(monkeypatch: Any) -> None:
    """Restores the environment variable that a preflight changes."""
    monkeypatch.setenv('XLA_FLAGS', '')


def loss_of_one_core(config: Config) -> float:
    """The loss of the step that a preflight compiles, without XLA: two images with two labels, all drawn at random."""
    config = dataclasses.replace(config, use_tpu=False, train_batch_size=2, model_dir=None)
    draw = np.random.RandomState(0)
    size = [config.height, config.width, 3]
    images = draw.uniform(-1, 1, [*size, 2] if config.transpose_enabled else [2, *size])
    labels = draw.randint(config.num_classes, size=2)
    features = tf.constant(images, config.precision)
    mode = tf.estimator.ModeKeys.TRAIN
    spec = model_fn.inception_model_fn(features, tf.constant(labels, tf.int32), mode, {'config': config})
    return float(evaluate(spec.loss))


@pytest.mark.nightly
def test_xla__compiles_and_runs_a_step() -> None:
    network = ['--depth_multiplier=0.01', '--num_classes=11', '--auxiliary_head=False', '--moving_average=False']
    flags = [*FAKE, *network, '--optimizer=sgd', '--mode=train', '--seed=1', '--json', '--xla']
    done = subprocess.run(
        [sys.executable, '-m', 'tools.preflight', '--topology=v2-8', *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    step = json.loads(done.stdout)['xla_step']
    assert (step['batch'], step['size']) == (2, [75, 75])
    others: Any = {'depth_multiplier': 0.01, 'auxiliary_head': False, 'moving_average': False, 'optimizer': 'sgd'}
    expected = loss_of_one_core(Config(height=75, width=75, num_classes=11, seed=1, **others))
    # The whole network normalizes the two images with each other, which amplifies rounding: 0.2 % on TensorFlow 2.15.
    assert step['loss'] == pytest.approx(expected, rel=1e-2) and step['seconds'] > 0
    assert 'WARNING' not in done.stderr and 'deprecated' not in done.stderr


def test_xla__names_the_missing_operation(one_layer: None, monkeypatch: Any) -> None:
    total_loss = model_fn.total_loss

    def loss_with_strings(logits: Any, auxiliary: Any, labels: Any, config: Config) -> Any:
        return total_loss(logits, auxiliary, labels, config) + tf.cast(
            tf.reduce_sum(tf.strings.length(tf.as_string(labels))), tf.float32
        )

    monkeypatch.setattr(model_fn, 'total_loss', loss_with_strings)
    errors = errors_of(*FAKE, '--topology=v2-8', '--mode=train', '--xla')
    assert '--xla_backend_optimization_level=0' in os.environ['XLA_FLAGS']
    assert any('XLA cannot compile' in error and 'AsString' in error for error in errors)


@pytest.mark.parametrize(('precision', 'tolerance'), [('float32', 1e-5), further('bfloat16', 5e-3)])
def test_xla__runs_a_training_step_on_two_random_images(precision: str, tolerance: float, one_layer: None) -> None:
    # The decay of the weights is half of the loss.
    changes: Any = {'transpose_enabled': True, 'precision': precision, 'weight_decay': 0.1}
    # A run on a TPU: its folder and its groups of cores do not matter for one core.
    config = Config(height=75, width=80, num_classes=11, seed=1, model_dir='gs://bucket/run', **changes)
    loss, seconds = graphs.run_compiled(dataclasses.replace(config, batch_norm='synchronized', batch_norm_group_size=4))
    assert seconds > 0 and loss == pytest.approx(loss_of_one_core(config), rel=tolerance)
