"""Tests of the training step that a preflight compiles with XLA and runs."""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from compat import tf
from inception_v3 import model_fn
from inception_v3.config import Config
from tests.support.preflights import FAKE, errors_of
from tools.preflight import graphs


@pytest.fixture(autouse=True)
def _own_xla_flags(monkeypatch: Any) -> None:
    """Restores the environment variable that a preflight changes."""
    monkeypatch.setenv('XLA_FLAGS', '')


@pytest.mark.both
@pytest.mark.slow
def test_xla__compiles_and_runs_a_step() -> None:
    network = ['--depth_multiplier=0.01', '--num_classes=11', '--auxiliary_head=False', '--moving_average=False']
    flags = [*FAKE, *network, '--optimizer=sgd', '--mode=train', '--json', '--xla']
    done = subprocess.run(
        [sys.executable, '-m', 'tools.preflight', '--topology=v2-8', *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    step = json.loads(done.stdout)['xla_step']
    assert (step['batch'], step['size']) == (2, [75, 75])
    # The cross-entropy of two random images, -log(1/11) on the average, plus the weight decay; unseeded.
    assert 0.3 < step['loss'] < 8 and step['seconds'] > 0
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


def test_xla__runs_a_training_step_on_two_random_images(one_layer: None) -> None:
    changes: Any = {'transpose_enabled': True, 'precision': 'bfloat16'}
    # A run on a TPU: its folder and its groups of cores do not matter for one core.
    config = Config(height=75, width=80, num_classes=11, seed=1, model_dir='gs://bucket/run', **changes)
    loss, seconds = graphs.run_compiled(dataclasses.replace(config, batch_norm='synchronized', batch_norm_group_size=4))
    # The cross-entropy of two random images is about -log(1/11) = 2.4, and the weight decay adds to it.
    assert seconds > 0 and 0.5 < loss < 8
