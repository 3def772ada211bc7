"""Tests of the values of the preset cifar10_stream, and of the most accurate evaluation that its log names."""

import pathlib

import numpy as np
import pytest

from data import records
from data.convert.cifar10 import __main__ as cifar10
from data.convert.cifar10 import conversion as cifar10_conversion
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.presets import PRESETS
from inception_v3.run.history import append_evaluation
from inception_v3.tpu import topology
from inception_v3.train_and_evaluate import most_accurate
from tests.support.evaluations import EVALUATION


def test_preset__has_the_published_values() -> None:
    config = Config(**PRESETS['cifar10_stream'])
    assert (config.replicas, topology.hosts_of(config)) == (32, 4)
    assert (config.train_batch_size, config.eval_batch_size) == (128 * 32, 64 * 32)
    assert (config.precision, config.preprocessing, config.followup_shuffle_buffer_size) == ('bfloat16', 'cifar', 10000)
    assert (config.train_epochs, config.epochs_per_eval, config.log_steps, config.num_files_infeed) == (10, 1, 10, 8)
    assert config.train_steps * config.train_batch_size == 10 * config.num_train_images == 10 * 1280000
    assert config.num_eval_images == cifar10.IMAGES[records.VALIDATION]
    assert config.num_classes == cifar10_conversion.CLASSES + 1
    # The rate rises for 312 steps to 0.1 per 256 images, and falls from there.
    rates = [learning_rate(step, config) for step in (0, 311, 312, 1718, 3124)]
    np.testing.assert_allclose(rates[:3], [1.6 / 312, 1.6, 1.6])
    assert rates[3] == pytest.approx(0.8, rel=1e-3) and rates[4] == pytest.approx(1.6e-4)
    # Ten evaluations, each at the end of its epoch or later.
    ends = [*range(config.train_steps_per_eval, config.train_steps, config.train_steps_per_eval), config.train_steps]
    assert [end * 4096 // 1280000 for end in ends] == [*range(1, 11)]


def test_most_accurate__considers_comparable_evaluations_of_earlier_commands(tmp_path: pathlib.Path) -> None:
    last = EVALUATION._replace(step=7, top_1=0.25)
    for evaluation in (
        last._replace(step=1, top_1=0.5),
        last._replace(step=2, top_1=0.75),
        last._replace(step=3, top_1=0.75),
        last._replace(step=4, top_1=1.0, images=5),
        last,
    ):
        append_evaluation(str(tmp_path), evaluation)
    assert most_accurate(str(tmp_path), last).step == 2
