"""Tests of the warnings about averages that still hold their initial values."""

import dataclasses
import re
from typing import Any, Dict, Tuple

import pytest

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.moving_average import update_averages
from inception_v3.presets import PRESETS
from inception_v3.run.slow_averages import initial_share_of_averages, warnings_of

CPU = Config(use_tpu=False, train_steps=5000)


@pytest.mark.parametrize('decay', [0.15, 0.995])
def test_initial_share_of_averages__is_that_of_the_running_average(decay: float) -> None:
    weight = tf.get_variable('weight', [], initializer=tf.ones_initializer(), use_resource=True)
    step = tf.placeholder(tf.int64, [])
    update = update_averages(dataclasses.replace(CPU, moving_average_decay=decay), step)
    average = next(v for v in tf.global_variables() if 'Average' in v.name)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        weight.load(0.0, session)
        for number in range(1, 5):
            session.run(update, {step: number})
            assert session.run(average) == pytest.approx(initial_share_of_averages(decay, number), rel=1e-5)


@pytest.mark.parametrize(
    ('values', 'words'),
    [
        # 0.9976 ** 400 = 0.38, and 0.9976 ** 958 = 0.1001.
        ({'train_steps': 400}, '--batch_norm_decay=0.9976: at the end, after 400 steps, .* hold 38% of'),
        ({'train_steps': 958}, 'at the end, after 958 steps'),
        ({'train_steps_per_eval': 500}, 'at the first evaluation, after 500 steps, .* hold 30% of'),
        (
            {'train_steps': 1, 'batch_norm_decay': 0.01},
            '--moving_average_decay=0.995: at the end, after 1 steps?, .*18%',
        ),
    ],
)
def test_warnings__name_the_flag_and_the_share(values: Dict[str, Any], words: str) -> None:
    (warning,) = warnings_of(dataclasses.replace(CPU, **values))
    assert re.search(words, warning), warning
    # The statistics of a trained network need no steps.
    begun = dataclasses.replace(CPU, **values, init_from='run')
    assert [*warnings_of(begun)] == ([] if '--batch_norm_decay' in warning else [warning])


def test_warnings__none_for_presets_and_for_what_is_forgotten() -> None:
    values: Tuple[Dict[str, Any], ...] = ({}, {'train_steps': 960}, {'train_steps_per_eval': 500, 'mode': 'train'})
    configs = [dataclasses.replace(CPU, **each) for each in values]
    configs += [Config(**preset) for preset in PRESETS.values()]
    configs.append(dataclasses.replace(CPU, train_steps=1, batch_norm_decay=0.01, moving_average=False))
    assert not [text for config in configs for text in warnings_of(config)]


@pytest.mark.parametrize('steps', [1, 7, 800])
def test_warnings__suggest_a_decay_that_forgets(steps: int) -> None:
    config = dataclasses.replace(CPU, train_steps=steps, moving_average=False)
    (warning,) = warnings_of(config)
    suggested = float(re.findall(r'Use --batch_norm_decay=([\d.]+) ', warning)[0])
    assert 0.001 < suggested**steps < 0.0101
    assert not [*warnings_of(dataclasses.replace(config, batch_norm_decay=suggested))]
