"""Tests of the CIFAR preprocessing against NumPy: padding, crops, flips, and evaluation."""

from typing import Any, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from preprocessing import cifar_preprocessing as cifar
from preprocessing.preprocessings import preprocessing_for
from preprocessing.steps import Settings
from tests.support.graphs import draw_many, evaluate
from tests.support.images import CAT, WHOLE, resize_bilinear

PHOTO = CAT[:32, 100:132]


def config(height: int = 32, width: int = 32, **changes: Any) -> Config:
    return Config(preprocessing='cifar', network='resnet50', height=height, width=width, **changes)


@pytest.mark.parametrize('padding', [4, 2, 0])
def test_training_image__is_padded_cropped_and_flipped(padding: int) -> None:
    # The documented padding is 4.
    preprocessing = preprocessing_for(config(**({} if padding == 4 else {'crop_padding': padding})))
    shape = tf.constant(PHOTO.shape)
    distortion = preprocessing.draw(shape, tf.constant(WHOLE), tf.random.uniform)
    finished = preprocessing.of_image(tf.constant(PHOTO), distortion)
    padded = np.pad(PHOTO.astype(float), [(padding, padding), (padding, padding), (0, 0)], 'constant')
    flips = set()
    for drawn, image in draw_many((distortion, finished), 20):
        by_hand = padded[drawn.top : drawn.top + 32, drawn.left : drawn.left + 32]
        by_hand = by_hand[:, ::-1] if drawn.flip else by_hand
        np.testing.assert_allclose(image, by_hand / 127.5 - 1, atol=1e-6)
        flips.add(bool(drawn.flip))
    assert flips == {True, False}


def test_draw_distortion__is_uniform_over_9_rows_and_9_columns() -> None:
    counts = np.zeros([9, 9])
    for drawn in draw_many(cifar.CifarPreprocessing(Settings(32, 32, random_flip=False)).draw(None, None), 2000):
        counts[drawn.top, drawn.left] += 1
        assert not drawn.flip
    # Expected: 24.7 at each position; the tolerance is five standard deviations.
    assert counts.min() > 0 and counts.max() < 50
    np.testing.assert_allclose(counts.sum(0), 2000 / 9, atol=75)
    np.testing.assert_allclose(counts.sum(1), 2000 / 9, atol=75)


@pytest.mark.parametrize('size', [(32, 32), (40, 48)])
def test_evaluation_image__is_only_resized_and_scaled(size: Tuple[int, int]) -> None:
    preprocessing = preprocessing_for(config(*size))
    finished = evaluate(preprocessing.of_image(tf.constant(PHOTO)))
    assert tuple(evaluate(preprocessing.crop(tf.constant(PHOTO.shape)).crop)) == (0, 0, 32, 32)
    np.testing.assert_allclose(finished, resize_bilinear(PHOTO.astype(float), *size) / 127.5 - 1, atol=1e-4)
