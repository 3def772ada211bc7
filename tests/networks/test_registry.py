"""Tests of every registered network within the program: training and prediction with the same model_fn."""

import dataclasses
from typing import Any, Dict

import numpy as np
import pytest
import tensorflow as tf

from inception_v3.config import Config, ConfigError
from inception_v3.model_fn import inception_model_fn, network_options
from inception_v3.networks.registry import NETWORKS, count_parameters

MODES = tf.estimator.ModeKeys
CLASSES = 7


def config_of(name: str, **changes: Any) -> Config:
    size = NETWORKS[name].min_size
    settings = {'height': size, 'width': size, 'num_classes': CLASSES, 'depth_multiplier': 0.01, **changes}
    return Config(network=name, use_tpu=False, **settings)


def spec_of(config: Config, mode: str, images: np.ndarray) -> Any:
    labels = None if mode == MODES.PREDICT else tf.constant([1, 2], tf.int32)
    return inception_model_fn(tf.constant(images), labels, mode, {'config': config})


# Other tests cover inception_v3. The two large RevNets are slow.
@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=pytest.mark.slow if name in ('revnet104', 'revnet110') else ())
        for name in sorted(set(NETWORKS) - {'inception_v3'})
    ],
)
def test_network__overfits_two_images_and_predicts_with_its_averages(name: str, tmp_path: Any) -> None:
    # With two images and a last map of one pixel, batch normalization would leave only the signs.
    options = {'zero_init_last_scale': True} if 'zero_init_last_scale' in NETWORKS[name].options else {}
    settings = {'height': 64, 'width': 64, 'optimizer': 'momentum', 'learning_rate': 0.1, **options}
    config = config_of(name, batch_norm_decay=0.5, moving_average_decay=0.5, seed=1, **settings)
    images = np.random.RandomState(0).uniform(-1, 1, [2, config.height, config.width, 3]).astype(np.float32)
    with tf.compat.v1.Session() as session:
        spec = spec_of(config, MODES.TRAIN, images)
        session.run(tf.compat.v1.global_variables_initializer())
        losses = [session.run([spec.loss, spec.train_op])[0] for _ in range(30)]
        saved = tf.compat.v1.train.Saver().save(session, str(tmp_path / 'model'))
    assert np.isfinite(losses).all() and losses[-1] < losses[0] / 1.5
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        spec = spec_of(config, MODES.PREDICT, images)
        spec.scaffold_fn().saver.restore(session, saved)
        predicted = session.run(spec.predictions)
    np.testing.assert_array_equal(predicted['classes'], [1, 2])
    np.testing.assert_allclose(predicted['probabilities'].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize('name', sorted(NETWORKS))
def test_min_size__is_the_smallest_accepted_size(name: str) -> None:
    config = config_of(name)
    for side in ('height', 'width'):
        smaller = NETWORKS[name].min_size - 1
        with pytest.raises(ConfigError, match=f'--{side}={smaller}: must be at least .* with --network={name}'):
            dataclasses.replace(config, **{side: smaller})


def test_zero_init_last_scale__sets_the_initial_scales() -> None:
    def scales(**flags: Any) -> Dict[str, float]:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            spec_of(config_of('resnet50', **flags), MODES.EVAL, np.zeros([2, 32, 32, 3], np.float32))
            session.run(tf.compat.v1.global_variables_initializer())
            found = {v.op.name: v for v in tf.compat.v1.trainable_variables() if 'conv_3/' in v.op.name}
            return {name: value.sum() for name, value in session.run(found).items() if 'gamma' in name}

    assert set(scales(zero_init_last_scale=True).values()) == {0.0}
    assert 0.0 not in scales().values()


def test_auxiliary_head__only_in_inception_v3() -> None:
    assert Config(height=299, width=299).has_auxiliary_head
    assert not Config(network='resnet50', height=299, width=299).has_auxiliary_head


@pytest.mark.parametrize('name', sorted(NETWORKS))
def test_count_parameters__is_the_number_of_trainable_parameters(name: str) -> None:
    size = max(NETWORKS[name].min_size, NETWORKS[name].auxiliary_head_min_size)
    config = config_of(name, height=size, width=size + 3, depth_multiplier=0.3)
    inception_model_fn(tf.zeros([2, size, size + 3, 3]), tf.constant([1, 2]), MODES.EVAL, {'config': config})
    expected = sum(int(np.prod(v.shape.as_list())) for v in tf.compat.v1.trainable_variables())
    assert count_parameters(name, size, size + 3, CLASSES, network_options(config)) == expected


def test_count_parameters__of_the_documented_default() -> None:
    assert count_parameters('inception_v3', 299, 299, 1001, network_options(Config())) == 27_145_970
