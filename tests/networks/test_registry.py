"""Tests of every registered network within the program: training and prediction with the same model_fn."""

import functools
from typing import Any, Callable, Dict

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn, network_options
from inception_v3.networks import resnet
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_56, revnet
from inception_v3.networks.sizes import sizes_of
from tests.support.graphs import plain_session
from tests.support.tiers import further

MODES = tf.estimator.ModeKeys


def spec_of(config: Config, mode: str, images: np.ndarray) -> Any:
    labels = None if mode == MODES.PREDICT else tf.constant([1, 2], tf.int32)
    return inception_model_fn(tf.constant(images), labels, mode, {'config': config})


def shorten_resnet50(patch: Any) -> None:
    patch.setattr(resnet, 'STAGES', (resnet.Stage(1, 64, stride=1), resnet.Stage(2, 128, stride=2)))


def shorten_revnet56(patch: Any) -> None:
    short = functools.partial(revnet, REVNET_56._replace(units=(2, 2), depths=(64, 128)))
    patch.setitem(NETWORKS, 'revnet56', NETWORKS['revnet56']._replace(build=short))


# Other tests train inception_v3 and revnet38. revnet104 and revnet110 have more blocks of the same kinds.
@pytest.mark.parametrize(('name', 'shorten'), [('resnet50', shorten_resnet50), further('revnet56', shorten_revnet56)])
def test_network__overfits_two_images_and_predicts_with_its_averages(
    name: str, shorten: Callable[[Any], None], monkeypatch: Any, tmp_path: Any
) -> None:
    shorten(monkeypatch)
    # With two images and a last map of one pixel, batch normalization would leave only the signs.
    options: Dict[str, Any] = {'zero_init_last_scale': True} if name == 'resnet50' else {}
    options.update(optimizer='momentum', learning_rate=0.1, batch_norm_decay=0.5, moving_average_decay=0.5, seed=1)
    settings = {'height': 32, 'width': 32, 'num_classes': 7, 'depth_multiplier': 0.01, **options}
    config = Config(network=name, use_tpu=False, **settings)
    images = np.random.RandomState(0).uniform(-1, 1, [2, 32, 32, 3]).astype(np.float32)
    with tf.Graph().as_default(), plain_session() as session:
        spec = spec_of(config, MODES.TRAIN, images)
        session.run(tf.global_variables_initializer())
        losses = [session.run([spec.loss, spec.train_op])[0] for _ in range(20)]
        saved = tf.train.Saver().save(session, str(tmp_path / 'model'))
    assert np.isfinite(losses).all() and losses[-1] < losses[0] / 1.5
    with tf.Graph().as_default(), plain_session() as session:
        spec = spec_of(config, MODES.PREDICT, images)
        spec.scaffold_fn().saver.restore(session, saved)
        predicted = session.run(spec.predictions)
    np.testing.assert_array_equal(predicted['classes'], [1, 2])
    np.testing.assert_allclose(predicted['probabilities'].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ('name', 'classes', 'parameters'),
    [
        ('inception_v3', 1001, 27_145_970),
        # Keras counts 25,636,712: this includes 26,560 biases of convolutions and 53,120 moving statistics.
        ('resnet50', 1000, 25_636_712 - 26_560 - 53_120),
        # Gomez et al., table 2: 0.46, 1.73 and 45.2 million.
        ('revnet38', 10, 464_858),
        ('revnet110', 10, 1_729_162),
        ('revnet104', 1000, 45_428_200),
        # Not in the paper: revnet104 without 8 of the 11 units of its third stage. Each unit has two functions with
        # kernels 1024 x 256, 3 x 3 x 256 x 256 and 256 x 1024, and normalizations of 1024, 256 and 256 channels.
        ('revnet56', 1000, 45_428_200 - 8 * 2 * (1024 * 256 + 9 * 256 * 256 + 256 * 1024 + 2 * (1024 + 256 + 256))),
    ],
)
def test_sizes_of__parameters_is_the_published_number(name: str, classes: int, parameters: int) -> None:
    size = {'inception_v3': 299, 'resnet50': 224, 'revnet104': 64, 'revnet56': 64}.get(name, 32)
    config = Config(network=name, height=size, width=size, num_classes=classes)
    assert sizes_of(NETWORKS[name], size, size, classes, network_options(config)).parameters == parameters
