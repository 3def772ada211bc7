"""Tests of the random crops of the Inception preprocessing: ranges, boxes and seeds."""

import numpy as np
import pytest

from compat import tf
from preprocessing import inception_preprocessing as inception
from preprocessing.inception_preprocessing import InceptionPreprocessing
from preprocessing.steps import Settings, whole_image_box
from tests.support.graphs import draw_many, evaluate, in_new_graph
from tests.support.images import BOXES, NO_BOXES, WHOLE, coordinates


def covered(crop: inception.Crop, boxes: np.ndarray, height: int, width: int) -> float:
    """Returns the largest fraction of a box that lies in the crop."""
    ymin, xmin, ymax, xmax = (boxes[0] * [height, width, height, width]).T
    high = np.minimum(ymax, crop.top + crop.height) - np.maximum(ymin, crop.top)
    wide = np.minimum(xmax, crop.left + crop.width) - np.maximum(xmin, crop.left)
    return (np.maximum(high, 0) * np.maximum(wide, 0) / ((ymax - ymin) * (xmax - xmin))).max()


def test_draw_crop__covers_boxes_given_as_ymin_xmin_ymax_xmax() -> None:
    shape = tf.constant([300, 400, 3])
    corner = np.array([[[0.9, 0.0, 1.0, 0.1]]], np.float32)  # at the bottom, on the left
    shares = []
    for boxes, least in ((corner, 0.1), (corner, 0.6), (WHOLE, 0.1)):
        crops = draw_many(inception.draw_crop(shape, tf.constant(boxes), least), 200)
        shares.append(np.array([covered(crop, corner, 300, 400) for crop in crops]))
    # Sides are rounded to whole pixels.
    assert 0.1 - 0.02 <= shares[0].min() < 0.3 and shares[1].min() >= 0.6 - 0.02
    assert sum(shares[2] == 0) > 50


def test_draw_crop__uses_the_whole_image_without_boxes() -> None:
    without, whole = (
        in_new_graph(lambda b: inception.draw_crop(tf.constant([300, 400, 3]), tf.constant(b)), 20, boxes)
        for boxes in (NO_BOXES, WHOLE)
    )
    assert without == whole
    np.testing.assert_array_equal(evaluate(whole_image_box()), WHOLE)


@pytest.mark.parametrize('boxes', [WHOLE, NO_BOXES, BOXES])
def test_distorted_bounding_box_crop__returns_the_box_of_its_pixels(boxes: np.ndarray) -> None:
    height, width = 60, 90
    crop, box = inception.distorted_bounding_box_crop(tf.constant(coordinates(height, width)), tf.constant(boxes))
    assert crop.dtype == tf.int32
    drawn = draw_many((crop, box), 30)
    for pixels, corners in drawn:
        assert corners.shape == (1, 1, 4)
        top, left, bottom, right = np.rint(corners[0, 0] * [height, width, height, width]).astype(int)
        np.testing.assert_array_equal(pixels, coordinates(height, width)[top:bottom, left:right])
    assert len({pixels.shape for pixels, _ in drawn}) > 10


def test_distorted_bounding_box_crop__applies_its_ranges() -> None:
    image = tf.constant(coordinates(100, 100))
    crop, _ = inception.distorted_bounding_box_crop(image, tf.constant(WHOLE), 0.5, (0.99, 1.01), (0.6, 0.7), 50)
    for pixels in draw_many(crop, 30):
        assert 77 <= pixels.shape[0] <= 84  # the roots of 0.6 and 0.7
        assert abs(pixels.shape[0] - pixels.shape[1]) <= 1


def test_draw__applies_the_settings_of_the_crop() -> None:
    shape, boxes = tf.constant([400, 400, 3]), tf.constant(WHOLE)
    kind = InceptionPreprocessing(Settings(75, 75, crop_area_min=0.5, crop_aspect_ratio_max=1.1))
    crops = draw_many(kind.draw(shape, boxes).crop, 200)
    areas = [crop.height * crop.width / 400**2 for crop in crops]
    ratios = [crop.width / crop.height for crop in crops]
    assert 0.49 <= min(areas) < 0.6
    assert max(areas) > 0.9
    assert 1 / 1.11 <= min(ratios) < 0.93
    assert 1.07 < max(ratios) <= 1.11
