"""Tests of random numbers that are a pure function of seed and call."""

from typing import Any, Callable, List

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from preprocessing.preprocessings import preprocessing_for
from preprocessing.stateless import StatelessUniform, UnseededUniform
from tests.support.graphs import evaluate

IMAGES = 2000
# The box of an image.
BOXES = [[[0.1, 0.2, 0.3, 0.9]]]
FULL = {'fast_mode': False, 'use_fast_color_distort': False}


def draw_each(build: Callable[[StatelessUniform], Any], seeds: Any, parallel: int = 1) -> List[np.ndarray]:
    """Draws numbers for each of many seeds [n, 2], in a data set's map; returns an array [n, …] for each number."""
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(np.array(seeds, np.int64))
        dataset = dataset.map(lambda seed: tuple(tf.nest.flatten(build(StatelessUniform(seed)))), parallel)
        return evaluate([*tf.data.make_one_shot_iterator(dataset.batch(len(seeds))).get_next()])


def seeds_of(first: int, count: int = IMAGES) -> np.ndarray:
    """Returns the seeds of images 0 to `count` - 1 of a run, [count, 2]."""
    return np.stack([np.full(count, first), np.arange(count)], 1)


def test_stateless_uniform__keeps_its_numbers_between_versions() -> None:
    """A change of these numbers would change every seeded run."""
    ends = -32 / 255, 32 / 255
    found = draw_each(
        lambda uniform: (
            *(uniform([2]), uniform([], -2.0, 6.0), uniform([3], 10, 1000, tf.int32)),
            uniform([600], *ends),
        ),
        [[7, 3]],
    )
    seeds = [tf.constant([7, 3 + (call << 56)], tf.int64) for call in range(4)]
    by_hand = evaluate(
        tf.random.stateless_uniform([2], seeds[0]),
        tf.random.stateless_uniform([], seeds[1], -2.0, 6.0),
        tf.random.stateless_uniform([3], seeds[2], 10, 1000, tf.int32),
        tf.random.stateless_uniform([600], seeds[3], *ends),
    )
    for drawn, expected in zip(found, by_hand):
        np.testing.assert_array_equal(drawn[0], expected)
    np.testing.assert_allclose(found[0][0], [0.981801, 0.395726], atol=1e-6)
    np.testing.assert_array_equal(found[2][0], [622, 986, 20])


def drawing(changes: Any) -> Callable[..., Any]:
    """A function that draws the distortions of a preprocessing, from a source of numbers and the shapes of images."""
    kind = preprocessing_for(Config(**changes))
    return lambda uniform, shapes=(300, 400, 3): kind.draw(tf.convert_to_tensor(shapes), tf.constant(BOXES), uniform)


@pytest.mark.parametrize(
    'changes', [{**FULL, 'use_annotated_bbox': True}, {'preprocessing': 'vgg'}, {'preprocessing': 'cifar'}], ids=str
)
def test_draw__depends_on_the_seed_alone(changes: Any) -> None:
    """Draws do not depend on parallelism, the order of images, the graph's seed or earlier draws."""
    seeds, build = seeds_of(5, 100), drawing(changes)
    drawn = draw_each(build, seeds)
    with_others = np.concatenate([seeds, seeds_of(6, 100)])[::-1]
    for one, again in zip(drawn, draw_each(build, with_others, parallel=8)):
        again, others = again[:99:-1], again[99::-1]
        np.testing.assert_array_equal(one, again)
        # Other seeds draw other numbers, except for constants such as the resize method in fast mode.
        assert np.array_equal(one, others) == (len(np.unique(one)) == 1)


def test_stateless_uniform__differs_between_seeds_epochs_images_and_calls() -> None:
    seeds = [
        [seed, (epoch << 32) + image]
        for seed in (0, 1, 2, -1, 2**62)
        for epoch in (0, 1, 2, 10000)
        for image in (*range(200), 1281166, 2**32 - 1)
    ]
    numbers = draw_each(lambda uniform: [uniform([3]) for _ in range(12)], seeds)
    assert len(np.unique(np.reshape(numbers, [-1, 3]), axis=0)) == 12 * len(seeds)


def some_numbers(uniform: Any, shapes: Any) -> Any:
    return [uniform([2, 3]), uniform([], -1.0, 3.0), uniform([], 0, 9, tf.int32)]


@pytest.mark.parametrize(
    'build',
    [some_numbers, *map(drawing, ({}, FULL, {'preprocessing': 'vgg'}, {'preprocessing': 'cifar'}))],
    ids=['numbers', 'inception', 'inception, full', 'vgg', 'cifar'],
)
def test_group__draws_the_bits_of_single_images(build: Callable[..., Any]) -> None:
    seeds = seeds_of(5, 40)
    # From wide to tall images, and an image of one pixel, whose only crop is the whole image.
    shapes = np.int32([[1 + 37 * number, 1 + 900 // (1 + number), 3] for number in range(39)] + [[1, 1, 3]])
    with tf.Graph().as_default():
        together = tf.nest.flatten(build(StatelessUniform(tf.constant(seeds, tf.int64)), tf.constant(shapes)))
        alone = tf.data.Dataset.from_tensor_slices((np.int64(seeds), shapes)).map(
            lambda seed, shape: tuple(tf.nest.flatten(build(StatelessUniform(seed), shape)))
        )
        together, alone = evaluate(together, tf.data.experimental.get_single_element(alone.batch(len(seeds))))
    for drawn, expected in zip(together, alone):
        np.testing.assert_array_equal(np.broadcast_to(drawn, expected.shape), expected)


def test_unseeded_group__draws_a_crop_for_each_image() -> None:
    uniform = UnseededUniform(200)
    shapes = tf.constant([[300, 400, 3]] * 100 + [[40, 30, 3]] * 100)
    drawn = evaluate([*drawing({})(uniform, shapes).crop])
    top, left, height, width = drawn
    assert min(top.min(), left.min()) >= 0 and height.min() > 0 and width.min() > 0
    for part, rows, columns in ((slice(100), 300, 400), (slice(100, 200), 40, 30)):
        assert (top + height)[part].max() <= rows and (left + width)[part].max() <= columns
        assert len(np.unique(np.stack(drawn)[:, part], axis=1).T) > 90
    assert evaluate(uniform([3], 5, 9, tf.int32)).shape == (200, 3)
