"""Tests of the VGG preprocessing against NumPy: sizes, crops, means, and random numbers."""

from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from preprocessing import vgg_preprocessing as vgg
from preprocessing.steps import Settings
from tests.support.graphs import draw_many, evaluate, in_new_graph
from tests.support.images import CAT, coordinates, resize_bilinear

# The channel means of ImageNet, for pixels in [0, 255].
MEANS = np.array([123.68, 116.78, 103.94])


def kind_for(height: int, width: int, smallest: int, largest: int, random_flip: bool = True) -> vgg.VggPreprocessing:
    return vgg.VggPreprocessing(Settings(height, width, random_flip), (smallest, largest))


@pytest.mark.parametrize(
    ('dtype', 'value', 'is_training'), [(np.uint8, 255, True), (np.int32, 100, False), (np.float32, 0, False)]
)
def test_preprocess_image__subtracts_the_means_from_pixels_of_0_to_255(
    value: int, dtype: type, is_training: bool
) -> None:
    image = tf.constant(np.full([20, 30, 3], value, dtype))
    prepared = vgg.preprocess_image(image, 11, 12, is_training, resize_side_min=12, resize_side_max=24)
    assert (prepared.dtype, prepared.shape.as_list()) == (tf.float32, [11, 12, 3])
    np.testing.assert_allclose(evaluate(prepared), np.broadcast_to(value - MEANS, [11, 12, 3]), atol=1e-4)


@pytest.mark.parametrize(
    ('shape', 'side', 'expected'),
    [
        ((300, 451), 300, (300, 451)),
        # The published program truncates the larger side.
        ((300, 451), 100, (100, 150)),  # 150.33
        ((300, 449), 100, (100, 149)),  # 149.67
        ((300, 451), 377, (377, 566)),  # 566.76
        # In float32, 291 * (300 / 291) is below 300.
        ((291, 291), 300, (300, 300)),
        ((200, 31), 50, (322, 50)),  # 322.58
        ((1, 3), 7, (7, 21)),
    ],
)
def test_resize__resizes_the_smaller_side_and_keeps_the_aspect_ratio(
    shape: Tuple[int, int], side: int, expected: Tuple[int, int]
) -> None:
    assert tuple(evaluate(vgg.resized_size(tf.constant([*shape, 3]), tf.constant(side)))) == expected
    image = CAT[: shape[0], : shape[1]].astype(np.float32)
    # The crop is the whole resized image.
    kind = kind_for(*expected, side, side)
    resized = evaluate(kind.resize(tf.constant(image), kind.crop(tf.constant([*shape, 3]))))
    # The tolerance of float32 for pixels up to 255, and for positions in a window.
    np.testing.assert_allclose(resized, resize_bilinear(image.astype(float), *expected), atol=5e-3)


@pytest.mark.parametrize(
    ('shape', 'side', 'size', 'begin', 'static'),
    [
        # The crop begins at half of the remainder, rounded down.
        ((300, 451), 300, (299, 299), (0, 76), True),
        ((300, 451), 150, (149, 101), (0, 62), False),  # of 150 x 225 (225.5)
        ((280, 140), 70, (61, 64), (39, 3), True),
        ((40, 30), 60, (60, 60), (10, 0), False),
    ],
)
def test_preprocess_image__crops_centrally_in_evaluation(
    shape: Tuple[int, int], side: int, size: Tuple[int, int], begin: Tuple[int, int], static: bool
) -> None:
    pixels = CAT[: shape[0], : shape[1]]
    image = tf.constant(pixels) if static else tf.placeholder_with_default(pixels, [None, None, 3])
    prepared = vgg.preprocess_image(image, *size, resize_side_min=side, resize_side_max=side + 100)
    assert prepared.shape.as_list() == [*size, 3]
    resized_shape = [length * side // min(shape) for length in shape]
    resized = resize_bilinear(pixels.astype(float), *resized_shape)
    by_hand = resized[begin[0] : begin[0] + size[0], begin[1] : begin[1] + size[1]] - MEANS
    np.testing.assert_allclose(evaluate(prepared), by_hand, atol=5e-3)


@pytest.mark.parametrize('size', [(75, 75), (60, 71)])
def test_of_image__equals_the_documented_steps(size: Tuple[int, int]) -> None:
    image = tf.placeholder_with_default(CAT, [None, None, 3])
    kind = kind_for(*size, 75, 150)
    distortion = kind.draw(tf.shape(image), None)
    result = kind.of_image(image, distortion)
    assert result.shape.as_list() == [*size, 3]
    flips = set()
    for drawn, distorted in draw_many((distortion, result), 10):
        shape = np.array([drawn.side, 451 * int(drawn.side) // 300])
        resized = resize_bilinear(CAT.astype(float), *shape)
        top, left = np.floor([drawn.top, drawn.left] * (shape - size + 1)).astype(int)
        by_hand = resized[top : top + size[0], left : left + size[1]]
        by_hand = (by_hand[:, ::-1] if drawn.flip else by_hand) - MEANS
        np.testing.assert_allclose(distorted, by_hand, atol=5e-3)
        flips.add(bool(drawn.flip))
    assert flips == {True, False}


def test_preprocess_image__crops_uniformly_over_all_positions() -> None:
    image = tf.constant(coordinates(12, 15))
    prepared = vgg.preprocess_image(
        image, 9, 10, is_training=True, resize_side_min=12, resize_side_max=12, random_flip=False
    )
    counts = np.zeros([4, 6])
    for crop in draw_many(prepared[0, 0], 1200):
        top, left, _ = np.rint(crop + MEANS).astype(int)
        counts[top, left] += 1
    # Expected: 50 at each of 4 x 6 positions; the tolerance is four standard deviations.
    assert counts.min() > 22
    assert counts.max() < 78


def test_of_image__maps_the_ends_of_the_draw_to_the_extreme_positions() -> None:
    image = tf.constant(coordinates(12, 15))
    just_below_1 = float(np.nextafter(np.float32(1), np.float32(0)))
    corners = [
        kind_for(9, 10, 12, 12).of_image(image, vgg.Distortion(12, top, left, tf.constant(False)))[0, 0]
        for top, left in [(0.0, 0.0), (just_below_1, just_below_1)]
    ]
    np.testing.assert_allclose(evaluate(corners) + MEANS, [[0, 0, 0], [3, 5, 0]], atol=1e-4)


def test_draw__draws_the_smaller_side_uniformly_with_both_ends() -> None:
    sides = draw_many(kind_for(1, 1, 300, 310).draw(None, None).side, 1100)
    counts = np.bincount(sides, minlength=311)[300:]
    # Expected: 100 of each; the tolerance is four standard deviations.
    assert len(counts) == 11 and counts.min() > 61 and counts.max() < 139


def test_preprocess_image__resizes_to_300_to_600_by_default() -> None:
    assert (vgg.CROP_SIZE, vgg.RESIZE_SIDE_MIN, vgg.RESIZE_SIDE_MAX) == (299, 300, 600)

    def drawn(*sides: Any) -> List[Any]:
        return in_new_graph(lambda: vgg.preprocess_image(tf.constant(CAT), 32, 32, True, *sides), 3)

    np.testing.assert_array_equal(drawn(), drawn(300, 600))


@pytest.mark.parametrize(
    ('height', 'width', 'smallest', 'largest'), [(51, 50, 50, 60), (50, 51, 50, 60), (40, 40, 60, 50)]
)
def test_preprocess_image__refuses_crops_that_do_not_fit(height: int, width: int, smallest: int, largest: int) -> None:
    with pytest.raises(ValueError, match=f'height={height} and width={width} must be at most .*{smallest}'):
        vgg.preprocess_image(tf.constant(CAT), height, width, True, smallest, largest)


def test_resize_range__is_300_to_600_for_299_pixels_and_in_proportion() -> None:
    assert vgg.resize_range(299, 299) == (300, 600)
    assert vgg.resize_range(75, 150) == (151, 301)
    for size in range(75, 500):
        smaller, larger = vgg.resize_range(size, 299)
        assert max(size, 299) <= smaller < larger
