"""Tests of the preprocessing objects: settings, and the steps from an image to the network and back."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from console.tensorflow_versions import tf
from inception_v3.config import Config
from preprocessing import finishing
from preprocessing.preprocessings import PREPROCESSINGS, preprocessing_for
from tests.support.graphs import draw_many, evaluate
from tests.support.images import CAT, WHOLE


@pytest.mark.parametrize('kind', PREPROCESSINGS)
def test_settings__have_the_names_and_defaults_of_flags(kind: str) -> None:
    settings_type = PREPROCESSINGS[kind].Settings
    flags = dataclasses.asdict(Config())
    assert settings_type(**{name: flags[name] for name in settings_type._fields}) == settings_type(299, 299)


@pytest.mark.parametrize('kind', PREPROCESSINGS)
def test_visible__inverts_finish(kind: str) -> None:
    preprocessing = preprocessing_for(Config(preprocessing=kind))
    finished = preprocessing.finish(tf.constant(CAT, tf.float32))
    np.testing.assert_array_equal(evaluate(preprocessing.visible(finished)), CAT)


@pytest.mark.parametrize('changes', [{}, {'preprocessing': 'vgg'}, {'preprocessing': 'cifar'}], ids=str)
def test_finished__equals_finish(changes: Any) -> None:
    tf.set_random_seed(3)
    height, width, _ = CAT.shape
    preprocessing = preprocessing_for(Config(height=height, width=width, **changes))
    image = tf.constant(CAT, tf.float32)
    distortion = preprocessing.draw(tf.constant(CAT.shape), tf.constant(WHOLE), tf.random.uniform)
    finished = preprocessing.finish(image, distortion)
    numbers = preprocessing.pack(distortion)[tf.newaxis]
    packed = finishing.finished(changes.get('preprocessing', 'inception'), image[tf.newaxis], numbers, True)[0]
    for on_host, on_device in draw_many((finished, packed), 4):
        np.testing.assert_allclose(on_device, on_host, atol=1e-5)


@pytest.mark.parametrize('kind', PREPROCESSINGS)
def test_crop__is_central_without_a_distortion(kind: str) -> None:
    preprocessing = preprocessing_for(Config(preprocessing=kind))
    top, left, height, width = evaluate(preprocessing.crop(tf.constant([600, 900, 3])).crop)
    assert abs(2 * top + height - 600) <= 2
    assert abs(2 * left + width - 900) <= 2


def test_crop__has_the_drawn_resize_method() -> None:
    preprocessing = preprocessing_for(Config(fast_mode=False))
    shape = tf.constant([30, 40, 3])
    distortion = preprocessing.draw(shape, tf.constant(WHOLE), tf.random.uniform)
    assert preprocessing.crop(shape, distortion) == (distortion.crop, distortion.resize_method)
