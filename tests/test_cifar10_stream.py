"""Tests of the preset cifar10_stream on a small data set: its values, its lines, and its best checkpoint."""

import logging
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from console.log import logger
from data import records
from data.convert.cifar10 import __main__ as cifar10
from data.convert.cifar10 import conversion as cifar10_conversion
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.presets import PRESETS
from inception_v3.run import best_checkpoint
from inception_v3.run.history import append_evaluation, read_evaluations
from inception_v3.tpu import topology
from inception_v3.train_and_evaluate import most_accurate
from tests.support.evaluations import EVALUATION
from tests.support.runs import execute

STEP = re.compile(
    r'\| Training Device=CPU:0 Epoch=1 Step=(\d) Loss=\d\.\d{5} Rate=(\S+) GlobalRate=(\S+) Time=\S+ '
    r'\| step (\d) of 3.*'
)
EPOCH = re.compile(
    r'Epoch 1 train end \S+, Epoch Time=0:\d\d:\d\d, Replica Train Samples=24, Reduced GlobalRate=(\S+) '
    r'\| (\S+) s, 24 images on 1 core'
)


def small(data_dir: str, model_dir: pathlib.Path, **changes: Any) -> Config:
    """The preset on a CPU, with the network of the fixture `one_layer`; an epoch has 2.5 steps."""
    flags = {
        **{'use_tpu': False, 'network': 'inception_v3', 'height': 75, 'width': 75, 'num_parallel_calls': 2},
        # The fixture replaces inception_v3, which has no such scale.
        'zero_init_last_scale': False,
        **{'data_dir': data_dir, 'model_dir': str(model_dir), 'num_train_images': 20, 'num_eval_images': 10},
        **{'train_batch_size': 8, 'eval_batch_size': 8, 'train_steps': 5, 'train_steps_per_eval': 3},
        **{'log_steps': 1, 'precision': 'float32'},
        # At the preset's rate, the cross-entropy is infinite after so few steps.
        **{'learning_rate': 0.01, 'batch_norm_decay': 0.1},
    }
    return Config(**{**PRESETS['cifar10_stream'], **flags, **changes})


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


@pytest.mark.program
@pytest.mark.both
def test_log__has_a_line_for_each_step_and_epoch(
    photo_dir: str, tmp_path: pathlib.Path, caplog: Any, one_layer: None
) -> None:
    caplog.set_level(logging.INFO, logger.name)
    # The lines do not depend on the data. A session that reads tar shards takes three times as long.
    summary = execute(small(photo_dir, tmp_path, data_format='tfrecord', train_steps=3))
    lines = [record.getMessage() for record in caplog.records]
    steps = [match for match in map(STEP.fullmatch, lines) if match]
    assert [(step[1], step[4]) for step in steps] == [(number, number) for number in '123']
    # The first step of a cycle has no earlier time for a rate of its own.
    assert [step[2] == step[3] for step in steps] == [True, False, False]
    (epoch,) = [match for match in map(EPOCH.fullmatch, lines) if match]
    assert epoch[1] == steps[2][3]
    # Both are rounded.
    seconds, rate = float(epoch[2]), float(epoch[1])
    assert 24 / (seconds + 0.05) - 0.01 <= rate <= 24 / (seconds - 0.05) + 0.01
    # There is no other line about steps.
    assert len([line for line in lines if re.search(r'step \d of 3', line)]) == 3

    (evaluation,) = read_evaluations(str(tmp_path))
    assert f'Max Accuracy      {evaluation.top_1:.2%} at step 3\n' in summary
    assert re.search(r'^Total Train Time  0:\d\d:\d\d$', summary, re.MULTILINE)
    kept = best_checkpoint.read(str(tmp_path))
    assert kept and kept.evaluation == evaluation


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
