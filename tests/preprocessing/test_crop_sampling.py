"""Tests of crops from given numbers: they follow the rules of TensorFlow's operation exactly, and its distribution."""

from typing import Any, Callable, List, NamedTuple, Tuple

import numpy as np
import pytest
import scipy.stats

from compat import tf
from preprocessing.crop_sampling import sample_crop
from preprocessing.stateless import StatelessUniform
from tests.support.graphs import evaluate
from tests.support.images import NO_BOXES, WHOLE

SMALL = np.array([[[0.9, 0.02, 0.97, 0.1]]], np.float32)
SEVERAL = np.array([[[0.05, 0.1, 0.25, 0.3], [0.7, 0.6, 1.0, 0.9], [0.4, 0.4, 0.4, 0.8]]], np.float32)
EMPTY = np.array([[[0.5, 0.5, 0.5, 0.9], [0.2, 0.2, 0.201, 0.201]]], np.float32)
INVERTED = np.array([[[0.9, 0.9, 0.1, 0.1]]], np.float32)


class Ranges(NamedTuple):
    """The limits of a crop, as arguments of `sample_crop`."""

    min_object_covered: float = 0.1
    aspect_ratio_range: Tuple[float, float] = (3 / 4, 4 / 3)
    area_range: Tuple[float, float] = (0.05, 1.0)
    max_attempts: int = 100


DEFAULT = Ranges()
SQUARE = Ranges(aspect_ratio_range=(1.0, 1.0))
STRICT = Ranges(0.6, (0.5, 2.0), (0.1, 0.7), 20)
NARROW = Ranges(0.0, (0.1, 0.8), (0.3, 0.35), 2)
ANY = Ranges(0.0, (0.2, 5.0), (0.01, 1.0), 3)

DRAWS = 2000


def crop_by_rules(numbers: np.ndarray, shape: Tuple[int, int], boxes: np.ndarray, ranges: Ranges) -> List[int]:
    """Computes a crop like TensorFlow's kernel: one attempt after the other, in whole pixels and float32."""
    height, width = shape
    corners = (boxes[0] * np.array([height, width, height, width], np.float32)).astype(int).tolist()
    min_area, max_area = (np.float32(area) * np.float32(width) * np.float32(height) for area in ranges.area_range)
    low, high = map(np.float32, ranges.aspect_ratio_range)

    def width_of(rows: int) -> int:
        return int(np.rint(np.float32(rows) * aspect))

    for aspect, step, *position in numbers.T:
        aspect = aspect * (high - low) + low
        smallest, largest = (int(np.rint(np.sqrt(area / aspect))) for area in (min_area, max_area))
        if width_of(largest) > width:
            largest = int((width + 0.5 - 1e-7) / float(aspect))
            largest -= width_of(largest) > width
        largest = min(largest, height)
        smallest = min(smallest, largest)
        rows = smallest + int(step * np.float32(largest - smallest + 1))
        if rows * width_of(rows) < min_area:
            rows += 1
        if rows * width_of(rows) > max_area:
            rows -= 1
        columns = width_of(rows)
        if not (min_area <= rows * columns <= max_area and 0 < columns <= width and 0 < rows <= height):
            continue
        top, left = (int(p * np.float32(room)) for p, room in zip(position, (height - rows, width - columns)))
        for y, x, bottom, right in corners or [(0, 0, height, width)]:
            area = (bottom - y) * (right - x)
            shared = [max(min(bottom, top + rows) - max(y, top), 0), max(min(right, left + columns) - max(x, left), 0)]
            if area >= 1 and np.float32(shared[0] * shared[1]) / np.float32(area) >= np.float32(
                ranges.min_object_covered
            ):
                return [top, left, rows, columns]
    return [0, 0, height, width]


@pytest.mark.parametrize('ranges', [DEFAULT, SQUARE, STRICT, NARROW, ANY])
def test_sample_crop__equals_the_rules_for_given_numbers(ranges: Ranges) -> None:
    random = np.random.RandomState(8)
    numbers, shape, bbox = (tf.placeholder(t) for t in (tf.float32, tf.int32, tf.float32))
    shape.set_shape([3])
    bbox.set_shape([1, None, 4])
    around_boxes, around_whole = (
        sample_crop(shape, around, *ranges, uniform=lambda size: tf.ensure_shape(numbers, size))
        for around in (bbox, tf.constant(WHOLE))
    )
    whole = 0
    with tf.Session() as session:
        run = session.make_callable((around_boxes, around_whole), [numbers, shape, bbox])
        for largest in (6, 20, 700):
            for boxes in (WHOLE, NO_BOXES, SMALL, SEVERAL, EMPTY, INVERTED, 'random', 'random') * 8:
                if isinstance(boxes, str):
                    boxes = np.float32(random.uniform(size=[1, random.randint(1, 5), 4]))
                size = random.randint(1, largest), random.randint(1, largest)
                given = np.float32(random.randint(0, 2**23, [4, ranges.max_attempts]) / 2**23)
                drawn, drawn_around_whole = (list(crop) for crop in run(given, [*size, 3], boxes))
                assert drawn == crop_by_rules(given, size, boxes, ranges), (size, boxes)
                assert drawn_around_whole == crop_by_rules(given, size, WHOLE, ranges), size
                whole += drawn == [0, 0, *size]
    assert 20 < whole < 150


# Distributions.


def draw_many(draw: Callable[[tf.Tensor], Any], count: int) -> np.ndarray:
    """Draws crops [count, 4] by a function of their index, one after the other as a seeded operation requires."""
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.range(count).map(lambda index: tf.stack(draw(index)))
        return evaluate(tf.data.make_one_shot_iterator(dataset.batch(count)).get_next())


def ours(shape: Tuple[int, int], boxes: np.ndarray, ranges: Ranges, count: int) -> np.ndarray:
    """Draws crops with `sample_crop`."""

    def draw(index: tf.Tensor) -> Any:
        uniform = StatelessUniform(tf.stack([tf.constant(29, tf.int64), index]))
        return sample_crop(tf.constant([*shape, 3]), tf.constant(boxes), *ranges, uniform=uniform)

    return draw_many(draw, count)


def of_tensorflow(shape: Tuple[int, int], boxes: np.ndarray, ranges: Ranges, count: int) -> np.ndarray:
    """Draws crops with TensorFlow's operation."""

    def draw(index: tf.Tensor) -> Any:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            [*shape, 3], boxes, seed=5, seed2=6, use_image_if_no_bounding_boxes=True, **ranges._asdict()
        )
        return [begin[0], begin[1], size[0], size[1]]

    return draw_many(draw, count)


# Area, aspect ratio and sides of crops, from their top, left, height and width.
MEASURES: List[Callable[..., np.ndarray]] = [
    lambda top, left, height, width: height * width,
    lambda top, left, height, width: width / height,
    lambda top, left, height, width: top,
    lambda top, left, height, width: left,
    lambda top, left, height, width: top + height,
    lambda top, left, height, width: left + width,
]
SAMPLERS: List[Callable[..., np.ndarray]] = [ours, of_tensorflow]


def likeness(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the smallest p-value of two-sample tests of two sets of crops."""
    return min(scipy.stats.ks_2samp(measure(*one.T), measure(*other.T)).pvalue for measure in MEASURES)


@pytest.mark.parametrize(
    ('shape', 'boxes', 'ranges'),
    [
        ((300, 400), SEVERAL, STRICT),
        ((50, 1), WHOLE, ANY),
    ],
)
def test_sample_crop__has_the_distribution_of_the_operation(
    shape: Tuple[int, int], boxes: np.ndarray, ranges: Ranges
) -> None:
    one, other = (draw(shape, boxes, ranges, DRAWS) for draw in SAMPLERS)
    assert len(np.unique(one, axis=0)) > 3
    assert likeness(one, other) > 0.001


@pytest.mark.parametrize('outside', [-0.1, 1.01, np.nan, np.inf])
def test_sample_crop__refuses_boxes_outside_0_to_1(outside: float) -> None:
    boxes = SEVERAL.copy()
    boxes[0, 1, 2] = outside
    for draw in SAMPLERS:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r'[Bb]ounding box'):
            draw((30, 40), boxes, DEFAULT, 1)
