"""Tests of resizing against NumPy."""

from typing import List, Tuple

import numpy as np
import pytest

from compat import tf
from preprocessing import steps
from tests.support.graphs import evaluate
from tests.support.images import CAT, resize_bilinear


def method_index(method: str) -> int:
    return steps.RESIZE_METHODS.index(getattr(tf.image.ResizeMethod, method))


@pytest.mark.parametrize(('size', 'in_graph'), [((61, 47), False), ((300, 451), False), ((301, 500), True)])
def test_apply_resize__is_bilinear_without_aligned_corners(size: Tuple[int, int], in_graph: bool) -> None:
    index = tf.constant(method_index('BILINEAR'))
    if in_graph:
        index = tf.placeholder_with_default(index, [])
    resized = steps.apply_resize(tf.constant(CAT / 255.0, tf.float32), *size, index)
    assert resized.shape.as_list() == [*size, 3]
    np.testing.assert_allclose(evaluate(resized), resize_bilinear(CAT / 255.0, *size), atol=1e-5)


@pytest.mark.parametrize('size', [(60, 60), (300, 451), (500, 700)])
@pytest.mark.parametrize('index', range(4))
def test_apply_resize__is_equal_for_bytes_and_floats(size: Tuple[int, int], index: int) -> None:
    """Whether bytes are converted beforehand or by the kernel depends on the size; both cases are tested."""
    of_bytes = steps.apply_resize(tf.constant(CAT), *size, index)
    assert of_bytes.dtype == tf.float32
    of_floats = tf.image.resize(tf.constant(CAT, tf.float32), size, steps.RESIZE_METHODS[index])
    np.testing.assert_array_equal(*evaluate((of_bytes, of_floats)))


@pytest.mark.parametrize(
    ('method', 'by_hand'),
    [
        ('BILINEAR', [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
        ('NEAREST_NEIGHBOR', [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]),
        # Keys' kernel with a = -0.75 at half a pixel: -3/32, 19/32, 19/32, -3/32.
        ('BICUBIC', [0.0, -3 / 32, 0.0, 0.5, 1.0, 1 + 3 / 32, 1.0, 1.0]),
        ('AREA', [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_apply_resize__enlarges_an_edge_by_the_formula_of_each_method(method: str, by_hand: List[float]) -> None:
    edge = tf.constant(np.broadcast_to([[[0], [0], [1], [1]]], [4, 4, 3]), tf.float32)
    index = tf.placeholder_with_default(method_index(method), [])
    resized = evaluate(steps.apply_resize(edge, 8, 8, index))
    np.testing.assert_allclose(resized, np.broadcast_to(np.reshape(by_hand, [1, 8, 1]), [8, 8, 3]), atol=1e-6)


def test_apply_resize__averages_by_area_when_shrinking() -> None:
    image = CAT[:300, :450] / 255.0
    resized = evaluate(steps.apply_resize(tf.constant(image, tf.float32), 100, 90, tf.constant(method_index('AREA'))))
    np.testing.assert_allclose(resized, image.reshape([100, 3, 90, 5, 3]).mean(axis=(1, 3)), atol=1e-5)


def test_resize_methods__keep_their_order_in_every_version() -> None:
    # A seed draws the number of the method.
    names = ('BILINEAR', 'NEAREST_NEIGHBOR', 'BICUBIC', 'AREA')
    assert tuple(getattr(tf.image.ResizeMethod, name) for name in names) == steps.RESIZE_METHODS
