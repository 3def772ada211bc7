"""Tests of the colour distortions against NumPy: formulas by hand, draws against their documented ranges."""

import colorsys
from typing import Any, Callable, List, Tuple

import numpy as np
import pytest

from compat import tf
from preprocessing import inception_preprocessing as inception
from preprocessing.color import (
    FastColor,
    FullColor,
    apply_color,
    apply_fast_color,
    apply_full_color,
    draw_full_color,
)
from tests.support.graphs import draw_many, evaluate, in_new_graph
from tests.support.images import CAT

# Fast colour.

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as in JFIF
# RGB to Y, Cb = (B - Y) / (2 - 2 * 0.114), Cr = (R - Y) / (2 - 2 * 0.299): JFIF 1.02 by its definition.
TO_YCBCR = np.stack([LUMA, (np.eye(3)[2] - LUMA) / 1.772, (np.eye(3)[0] - LUMA) / 1.402])
SHIFTS = [(0.0, 0.0, 0.0), (0.1, 0.0, 0.0), (0.0, 0.08, 0.0), (0.0, 0.0, 0.08), (-0.125, 0.1, -0.09), (0.07, -0.1, 0.1)]


@pytest.mark.parametrize('shift', SHIFTS)
def test_apply_fast_color__shifts_in_ycbcr(shift: Tuple[float, float, float]) -> None:
    image = np.random.RandomState(0).uniform(size=[5, 200, 3])
    by_hand = (image @ TO_YCBCR.T + shift) @ np.linalg.inv(TO_YCBCR).T
    distorted = evaluate(apply_fast_color(tf.constant(image, tf.float32), FastColor(*shift)))
    np.testing.assert_allclose(distorted, np.clip(by_hand, 0, 1), atol=1e-4)


@pytest.mark.parametrize(('cb_range', 'cr_range'), [(0.05, 0.2), (0.1, 0.0)])
def test_distort_color_fast__draws_uniformly_within_its_ranges(cb_range: float, cr_range: float) -> None:
    distorted = inception.distort_color_fast(tf.fill([1, 1, 3], 0.5), cb_range, cr_range)
    offsets = np.reshape(draw_many(distorted, 400), [400, 3]) - 0.5
    drawn = offsets @ TO_YCBCR.T
    for values, limit in zip(drawn.T, [32 / 255, cb_range, cr_range]):
        assert np.abs(values).max() <= limit + 1e-6
        assert values.max() >= 0.95 * limit - 1e-6
        assert values.min() <= -0.95 * limit + 1e-6
        # The standard deviation of a uniform number, within five standard errors.
        np.testing.assert_allclose(values.std(), limit / np.sqrt(3), rtol=0.12, atol=1e-6)


# Full colour, computed by hand on float64 [height, width, 3].


def change_hsv(image: np.ndarray, change: Callable[[float, float, float], Tuple[float, float, float]]) -> np.ndarray:
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in image.reshape([-1, 3])]
    return np.reshape(pixels, image.shape)


def full_color(image: np.ndarray, color: FullColor, operations: str) -> np.ndarray:
    for operation in operations:
        if operation == 'b':
            image = image + color.brightness
        elif operation == 's':
            image = change_hsv(image, lambda h, s, v: (h, min(s * color.saturation, 1.0), v))
        elif operation == 'h':
            image = change_hsv(image, lambda h, s, v: ((h + color.hue) % 1.0, s, v))
        else:
            mean = image.mean(axis=(0, 1))
            image = (image - mean) * color.contrast + mean
    return np.clip(image, 0, 1)


# Vivid pixels: brightness and saturation commute unless the saturation is clipped.
SOME_PIXELS = np.random.RandomState(3).uniform(0.4, 0.65, [3, 4, 3])
SOME_PIXELS[:, np.arange(4), np.arange(4) % 3] *= [0.1, 0.15, 0.2, 0.25]
STRONG = FullColor(brightness=0.1, saturation=1.4, hue=0.15, contrast=0.7)
# The documented orders: the two of fast mode, then those of full mode by `color_ordering`.
FAST_ORDERS = ['bs', 'sb']
FULL_ORDERS = ['bshc', 'sbch', 'chbs', 'hscb']


@pytest.mark.parametrize('operations', [*FAST_ORDERS, *FULL_ORDERS])
@pytest.mark.parametrize('color', [STRONG, FullColor(-0.12, 0.55, -0.2, 1.5)])
def test_apply_full_color__applies_the_operations_in_order(color: FullColor, operations: str) -> None:
    distorted = evaluate(apply_full_color(tf.constant(SOME_PIXELS, tf.float32), color, operations))
    np.testing.assert_allclose(distorted, full_color(SOME_PIXELS, color, operations), atol=2e-6)


@pytest.mark.parametrize(
    ('ordering', 'fast_mode', 'operations'),
    [(0, True, 'bs'), (1, True, 'sb'), (3, True, 'sb'), *((i, False, order) for i, order in enumerate(FULL_ORDERS))],
)
def test_distort_color__applies_the_documented_order(ordering: int, fast_mode: bool, operations: str) -> None:
    def distorted(build: Callable[[tf.Tensor], Any]) -> List[Any]:
        return in_new_graph(lambda: build(tf.constant(SOME_PIXELS, tf.float32)), 5)

    colors = distorted(lambda image: draw_full_color())
    images = distorted(lambda image: inception.distort_color(image, ordering, fast_mode))
    for color, image in zip(colors, images):
        np.testing.assert_allclose(image, full_color(SOME_PIXELS, color, operations), atol=2e-6)


@pytest.mark.parametrize(('ordering', 'fast_mode'), [(0, True), *((index, False) for index in range(4))])
def test_apply_color__has_the_bits_of_pixels_in_0_to_1(ordering: int, fast_mode: bool) -> None:
    image = tf.constant(CAT[::3, ::3], tf.float32)
    results = []
    for color in (STRONG, FullColor(-0.12, 0.55, -0.2, 1.5)):
        color = FullColor(*(tf.constant(number, tf.float32) for number in color))
        distorted = apply_full_color(image * (1 / 255), color, 'bs' if fast_mode else FULL_ORDERS[ordering])
        results.append((apply_color(image, color, tf.constant(ordering), fast_mode, 255.0), distorted * 2.0 - 1.0))
    for at_once, by_steps in evaluate(results):
        np.testing.assert_array_equal(at_once, by_steps)


@pytest.mark.parametrize('ordering', [-1, 4, 17])
def test_distort_color__refuses_an_unknown_ordering(ordering: int) -> None:
    with pytest.raises(ValueError, match=f'color_ordering is {ordering}; it must be 0 to 3'):
        inception.distort_color(tf.zeros([1, 1, 3]), ordering, fast_mode=False)


@pytest.mark.parametrize('fast_mode', [True, False])
def test_distort_color__clips_to_0_and_1(fast_mode: bool) -> None:
    image = tf.constant(CAT[::10, ::10] / 255.0 * 2 - 0.5, tf.float32)
    distorted = np.array(draw_many(inception.distort_color(image, fast_mode=fast_mode), 5))
    assert (distorted.min(), distorted.max()) == (0, 1)


def test_draw_full_color__is_uniform_within_the_documented_ranges() -> None:
    drawn = np.array(draw_many(draw_full_color(), 400))
    for values, (lowest, highest) in zip(drawn.T, [(-32 / 255, 32 / 255), (0.5, 1.5), (-0.2, 0.2), (0.5, 1.5)]):
        assert lowest - 1e-6 <= values.min() <= lowest + 0.02 * (highest - lowest)
        assert highest + 1e-6 >= values.max() >= highest - 0.02 * (highest - lowest)
        np.testing.assert_allclose(values.std(), (highest - lowest) / np.sqrt(12), rtol=0.12)
