"""The Inception preprocessing against NumPy: every formula by hand, every draw against its documented range."""

import colorsys
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
import skimage.data
import tensorflow as tf

from preprocessing import inception_preprocessing as inception
from tests.support.graphs import draw_many, evaluate, in_new_graph
from tests.support.images import coordinates, resize_bilinear

CAT = np.ascontiguousarray(skimage.data.chelsea())  # uint8, 300 x 451
NO_BOXES = np.zeros([1, 0, 4], np.float32)
WHOLE = np.array([[[0, 0, 1, 1]]], np.float32)


@pytest.fixture(autouse=True)
def _fixed_draws(_new_graph: None) -> None:
    tf.compat.v1.set_random_seed(7)


# Colour, fast.

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as in JFIF
# RGB to Y, Cb = (B - Y) / (2 - 2 * 0.114), Cr = (R - Y) / (2 - 2 * 0.299): JFIF 1.02 by its definition.
TO_YCBCR = np.stack([LUMA, (np.eye(3)[2] - LUMA) / 1.772, (np.eye(3)[0] - LUMA) / 1.402])
SHIFTS = [(0.0, 0.0, 0.0), (0.1, 0.0, 0.0), (0.0, 0.08, 0.0), (0.0, 0.0, 0.08), (-0.125, 0.1, -0.09), (0.07, -0.1, 0.1)]


@pytest.mark.parametrize('shift', SHIFTS)
def test_fast_color_is_a_shift_in_ycbcr(shift: Tuple[float, float, float]) -> None:
    image = CAT[100:150, 100:200] / 255.0
    by_hand = (image @ TO_YCBCR.T + shift) @ np.linalg.inv(TO_YCBCR).T
    distorted = evaluate(inception.apply_fast_color(tf.constant(image, tf.float32), inception.FastColor(*shift)))
    np.testing.assert_allclose(distorted, np.clip(by_hand, 0, 1), atol=1e-4)


@pytest.mark.parametrize(('b', 'cb', 'cr'), SHIFTS)
def test_fast_color_adds_the_documented_offsets(b: float, cb: float, cr: float) -> None:
    grey = tf.fill([2, 3, 3], 0.5)
    distorted = evaluate(inception.apply_fast_color(grey, inception.FastColor(b, cb, cr)))
    offsets = [1.402 * cr + b, -0.344136 * cb - 0.714136 * cr + b, 1.772 * cb + b]
    np.testing.assert_allclose(distorted - 0.5, np.broadcast_to(offsets, [2, 3, 3]), atol=1e-7)


def test_fast_color_clips_to_0_and_1() -> None:
    image = tf.constant([[[0.05, 0.5, 0.95]]])
    brighter, darker = evaluate(
        inception.apply_fast_color(image, inception.FastColor(0.125, 0.0, 0.0)),
        inception.apply_fast_color(image, inception.FastColor(-0.125, 0.0, 0.0)),
    )
    np.testing.assert_allclose(brighter, [[[0.175, 0.625, 1.0]]], atol=1e-7)
    np.testing.assert_allclose(darker, [[[0.0, 0.375, 0.825]]], atol=1e-7)


@pytest.mark.parametrize(('cb_range', 'cr_range'), [(0.1, 0.1), (0.05, 0.2), (0.0, 0.1), (0.1, 0.0), (0.0, 0.0)])
def test_distort_color_fast_draws_uniformly_within_its_ranges(cb_range: float, cr_range: float) -> None:
    distorted = inception.distort_color_fast(tf.fill([1, 1, 3], 0.5), cb_range, cr_range)
    offsets = np.reshape(draw_many(distorted, 400), [400, 3]) - 0.5
    drawn = offsets @ TO_YCBCR.T
    for values, limit in zip(drawn.T, [32 / 255, cb_range, cr_range]):
        assert np.abs(values).max() <= limit + 1e-6
        assert values.max() >= 0.95 * limit - 1e-6
        assert values.min() <= -0.95 * limit + 1e-6
        # A uniform number's deviation, within five standard errors.
        np.testing.assert_allclose(values.std(), limit / np.sqrt(3), rtol=0.12, atol=1e-6)


# Colour, full. Each operation by hand, on float64 [height, width, 3].


def change_hsv(image: np.ndarray, change: Callable[[float, float, float], Tuple[float, float, float]]) -> np.ndarray:
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in image.reshape([-1, 3])]
    return np.reshape(pixels, image.shape)


def full_color(image: np.ndarray, color: inception.FullColor, operations: str) -> np.ndarray:
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


# Vivid pixels. In pale ones brightness and saturation commute: only where saturation reaches its end, they do not.
SOME_PIXELS = np.random.RandomState(3).uniform(0.4, 0.65, [3, 4, 3])
SOME_PIXELS[:, np.arange(4), np.arange(4) % 3] *= [0.1, 0.15, 0.2, 0.25]
STRONG = inception.FullColor(brightness=0.1, saturation=1.4, hue=0.15, contrast=0.7)
# The orders of the specification: fast mode's two, then full mode's by ordering.
FAST_ORDERS = ['bs', 'sb']
FULL_ORDERS = ['bshc', 'sbch', 'chbs', 'hscb']


@pytest.mark.parametrize('operations', [*'bshc', *FAST_ORDERS, *FULL_ORDERS])
@pytest.mark.parametrize('color', [STRONG, inception.FullColor(-0.12, 0.55, -0.2, 1.5)])
def test_full_color_applies_the_operations_in_order(color: inception.FullColor, operations: str) -> None:
    distorted = evaluate(inception.apply_full_color(tf.constant(SOME_PIXELS, tf.float32), color, operations))
    np.testing.assert_allclose(distorted, full_color(SOME_PIXELS, color, operations), atol=2e-6)


@pytest.mark.parametrize(
    ('ordering', 'fast_mode', 'operations'),
    [(0, True, 'bs'), (1, True, 'sb'), (3, True, 'sb'), *((i, False, order) for i, order in enumerate(FULL_ORDERS))],
)
def test_distort_color_takes_the_documented_order(ordering: int, fast_mode: bool, operations: str) -> None:
    def distorted(build: Callable[[tf.Tensor], Any]) -> List[Any]:
        return in_new_graph(lambda: build(tf.constant(SOME_PIXELS, tf.float32)), 5)

    colors = distorted(lambda image: inception.draw_full_color())
    images = distorted(lambda image: inception.distort_color(image, ordering, fast_mode))
    for color, image in zip(colors, images):
        np.testing.assert_allclose(image, full_color(SOME_PIXELS, color, operations), atol=2e-6)


@pytest.mark.parametrize('orders', [FAST_ORDERS, FULL_ORDERS])
def test_the_orders_give_different_results(orders: List[str]) -> None:
    image = tf.constant(SOME_PIXELS, tf.float32)
    results = evaluate([inception.apply_full_color(image, STRONG, operations) for operations in orders])
    for index, result in enumerate(results):
        for other in results[:index]:
            assert np.abs(result - other).max() > 1e-3


@pytest.mark.parametrize('ordering', [-1, 4, 17])
def test_an_unknown_ordering_is_refused(ordering: int) -> None:
    with pytest.raises(ValueError, match=f'color_ordering is {ordering}; it must be 0 to 3'):
        inception.distort_color(tf.zeros([1, 1, 3]), ordering, fast_mode=False)


def test_distort_color_is_fast_with_ordering_0_by_default() -> None:
    default, explicit = (
        in_new_graph(lambda *a: inception.distort_color(tf.constant(SOME_PIXELS, tf.float32), *a), 3, *arguments)
        for arguments in ((), (0, True))
    )
    np.testing.assert_array_equal(default, explicit)


@pytest.mark.parametrize('fast_mode', [True, False])
def test_distort_color_clips_to_0_and_1(fast_mode: bool) -> None:
    image = tf.constant(CAT[::10, ::10] / 255.0 * 2 - 0.5, tf.float32)
    distorted = np.array(draw_many(inception.distort_color(image, fast_mode=fast_mode), 5))
    assert (distorted.min(), distorted.max()) == (0, 1)


def test_full_color_is_drawn_uniformly_within_the_documented_ranges() -> None:
    drawn = np.array(draw_many(inception.draw_full_color(), 400))
    for values, (lowest, highest) in zip(drawn.T, [(-32 / 255, 32 / 255), (0.5, 1.5), (-0.2, 0.2), (0.5, 1.5)]):
        assert lowest - 1e-6 <= values.min() <= lowest + 0.02 * (highest - lowest)
        assert highest + 1e-6 >= values.max() >= highest - 0.02 * (highest - lowest)
        np.testing.assert_allclose(values.std(), (highest - lowest) / np.sqrt(12), rtol=0.12)


def hue_and_contrast(fast_mode: bool, use_fast_color_distort: bool) -> Tuple[np.ndarray, np.ndarray]:
    """How much `preprocess_for_train` turned the hue of one colour, and scaled a grey gradient, in 60 draws."""
    color = np.broadcast_to([0.6, 0.5, 0.4], [40, 40, 3])
    gradient = np.broadcast_to(np.linspace(0.4, 0.6, 40)[:, None, None], [40, 40, 3])
    outputs = [
        inception.preprocess_for_train(
            tf.constant(image, tf.float32),
            40,
            40,
            tf.constant(WHOLE),
            fast_mode=fast_mode,
            use_fast_color_distort=use_fast_color_distort,
            # Nearly the whole image: the gradient stays as steep as it was.
            crop_area_min=0.99,
        )
        for image in (color, gradient)
    ]
    pairs = draw_many(outputs, 60)
    hue = colorsys.rgb_to_hsv(*color[0, 0])[0]
    turns = [colorsys.rgb_to_hsv(*(colored[20, 20] / 2 + 0.5))[0] - hue for colored, _ in pairs]
    factors = [(grey[:, :, 0] / 2).std() / gradient.std() for _, grey in pairs]
    return (np.array(turns) + 0.5) % 1 - 0.5, np.array(factors)


def test_full_mode_turns_the_hue_and_changes_the_contrast() -> None:
    turns, factors = hue_and_contrast(fast_mode=False, use_fast_color_distort=False)
    assert -0.201 <= turns.min() < -0.15
    assert 0.201 >= turns.max() > 0.15
    assert 0.48 <= factors.min() < 0.6
    assert 1.52 >= factors.max() > 1.4


def test_fast_mode_leaves_hue_and_contrast_alone() -> None:
    turns, factors = hue_and_contrast(fast_mode=True, use_fast_color_distort=False)
    np.testing.assert_allclose(turns, 0, atol=1e-5)
    np.testing.assert_allclose(factors, 1, atol=0.02)


def test_the_fast_color_distortion_leaves_contrast_alone_even_in_full_mode() -> None:
    turns, factors = hue_and_contrast(fast_mode=False, use_fast_color_distort=True)
    np.testing.assert_allclose(factors, 1, atol=0.02)
    assert np.abs(turns).max() > 0.01  # it moves the chroma, though


# Crop.

BOXES = np.array([[[0.05, 0.1, 0.25, 0.3], [0.7, 0.6, 1.0, 0.9]]], np.float32)


def covered(crop: inception.Crop, boxes: np.ndarray, height: int, width: int) -> float:
    """The largest share of a box that lies in the crop."""
    ymin, xmin, ymax, xmax = (boxes[0] * [height, width, height, width]).T
    high = np.minimum(ymax, crop.top + crop.height) - np.maximum(ymin, crop.top)
    wide = np.minimum(xmax, crop.left + crop.width) - np.maximum(xmin, crop.left)
    return (np.maximum(high, 0) * np.maximum(wide, 0) / ((ymax - ymin) * (xmax - xmin))).max()


@pytest.mark.parametrize('boxes', [WHOLE, NO_BOXES, BOXES, BOXES[:, 1:]])
@pytest.mark.parametrize(
    ('min_covered', 'aspect_ratios', 'areas'),
    [(0.1, (3 / 4, 4 / 3), (0.05, 1.0)), (0.4, (0.5, 2.0), (0.4, 0.9)), (0.25, (0.9, 1.1), (0.05, 0.5))],
)
def test_every_crop_keeps_to_the_ranges(
    boxes: np.ndarray, min_covered: float, aspect_ratios: Tuple[float, float], areas: Tuple[float, float]
) -> None:
    height, width = 300, 400
    shape = tf.constant([height, width, 3])
    crops = draw_many(inception.draw_crop(shape, tf.constant(boxes), min_covered, aspect_ratios, areas), 300)
    around = boxes if boxes.size else WHOLE
    for crop in crops:
        assert min(crop.top, crop.left, height - crop.top - crop.height, width - crop.left - crop.width) >= 0
        # Sides are rounded to whole pixels.
        assert (crop.width + 1) / (crop.height - 1) >= aspect_ratios[0]
        assert (crop.width - 1) / (crop.height + 1) <= aspect_ratios[1]
        assert (crop.height + 1) * (crop.width + 1) >= areas[0] * height * width
        assert (crop.height - 1) * (crop.width - 1) <= areas[1] * height * width
        assert covered(crop, around, height, width) >= min_covered - 0.02
    assert len({(crop.top, crop.left) for crop in crops}) > 200
    shares = [crop.height * crop.width / (height * width) for crop in crops]
    assert max(shares) - min(shares) > 0.5 * (areas[1] - areas[0])


def test_annotated_boxes_as_ymin_xmin_ymax_xmax_draw_the_crops_to_them() -> None:
    shape = tf.constant([300, 400, 3])
    corner = np.array([[[0.9, 0.0, 1.0, 0.1]]], np.float32)  # at the bottom, on the left
    near, anywhere = (
        [covered(crop, corner, 300, 400) for crop in draw_many(inception.draw_crop(shape, tf.constant(boxes)), 200)]
        for boxes in (corner, WHOLE)
    )
    assert min(near) >= 0.1 - 0.02
    assert sum(share == 0 for share in anywhere) > 50


DOCUMENTED = {'min_object_covered': 0.1, 'aspect_ratio_range': (3 / 4, 4 / 3), 'area_range': (0.05, 1.0)}


def test_without_any_range_the_colours_stay() -> None:
    none: Dict[str, Any] = {'brightness_distortion_range': 0.0, 'cb_distortion_range': 0.0, 'cr_distortion_range': 0.0}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fast = inception.apply_fast_color(tf.constant(np.float32(CAT / 255)), inception.draw_fast_color(**none))
        brightness = inception.draw_full_color(brightness_distortion_range=0.0).brightness
        colors, zero = session.run([fast, brightness])
    np.testing.assert_array_equal(colors, np.float32(CAT / 255))
    assert zero == 0


@pytest.mark.parametrize(
    ('function', 'arguments', 'documented'),
    [
        (inception.draw_crop, ([300, 400, 3], BOXES), {**DOCUMENTED, 'max_attempts': 100}),
        (inception.distorted_bounding_box_crop, (CAT, BOXES), {**DOCUMENTED, 'max_attempts': 100}),
        (inception.draw_fast_color, (), {'cb_distortion_range': 0.1, 'cr_distortion_range': 0.1}),
        (
            inception.distort_color_fast,
            (np.float32(CAT / 255),),
            {'cb_distortion_range': 0.1, 'cr_distortion_range': 0.1},
        ),
        (
            inception.preprocess_for_train,
            (CAT, 30, 40, BOXES),
            {
                'fast_mode': True,
                'use_fast_color_distort': True,
                'cb_distortion_range': 0.1,
                'cr_distortion_range': 0.1,
                'brightness_distortion_range': 32 / 255,
                'random_flip': True,
                'crop_area_min': 0.05,
                'crop_aspect_ratio_max': 4 / 3,
            },
        ),
    ],
)
def test_the_defaults_are_the_documented_ranges(
    function: Callable[..., Any], arguments: Tuple[Any, ...], documented: Dict[str, Any]
) -> None:
    def build(settings: Dict[str, Any]) -> Any:
        return function(*(tf.constant(a) if isinstance(a, (list, np.ndarray)) else a for a in arguments), **settings)

    for default, explicit in zip(in_new_graph(build, 20, {}), in_new_graph(build, 20, documented)):
        for one, other in zip(default, explicit):
            np.testing.assert_array_equal(one, other)


def test_draws_of_training_crops_have_the_documented_ranges_by_default() -> None:
    def draw(**ranges: Any) -> List[Any]:
        return in_new_graph(lambda: inception.draw_crop(tf.constant([300, 400, 3]), tf.constant(WHOLE), **ranges), 20)

    def draw_for_training() -> inception.Crop:
        return inception.draw_distortion(tf.constant([300, 400, 3]), tf.constant(WHOLE)).crop

    assert in_new_graph(draw_for_training, 20) == draw(**DOCUMENTED)


def test_no_boxes_mean_the_whole_image() -> None:
    without, whole = (
        in_new_graph(lambda b: inception.draw_crop(tf.constant([300, 400, 3]), tf.constant(b)), 20, boxes)
        for boxes in (NO_BOXES, WHOLE)
    )
    assert without == whole
    np.testing.assert_array_equal(evaluate(inception.whole_image_box()), WHOLE)


def test_the_graph_seed_fixes_the_crops() -> None:
    drawn = []
    for seed in (1, 1, 2):
        with tf.Graph().as_default():
            tf.compat.v1.set_random_seed(seed)
            drawn.append(draw_many(inception.draw_crop(tf.constant([300, 400, 3]), tf.constant(WHOLE)), 5))
    first, again, other = drawn
    assert first == again
    assert first != other


def test_two_crops_in_a_graph_with_a_seed_differ() -> None:
    shape = tf.constant([300, 400, 3])
    one, other = (inception.draw_crop(shape, tf.constant(WHOLE)) for _ in range(2))
    assert all(first != second for first, second in draw_many((one, other), 5))


def test_without_a_graph_seed_the_crops_differ_from_run_to_run() -> None:
    drawn = []
    for _ in range(2):
        with tf.Graph().as_default():
            drawn.append(draw_many(inception.draw_crop(tf.constant([300, 400, 3]), tf.constant(WHOLE)), 5))
    assert drawn[0] != drawn[1]


def test_an_impossible_crop_becomes_the_whole_image() -> None:
    # 1,000 x 10 pixels: a crop of aspect 4/3 covers at most 0.0133 of them.
    crop = evaluate(inception.draw_crop(tf.constant([1000, 10, 3]), tf.constant(WHOLE)))
    assert crop == (0, 0, 1000, 10)


@pytest.mark.parametrize('boxes', [WHOLE, NO_BOXES, BOXES])
def test_distorted_bounding_box_crop_returns_the_box_of_its_pixels(boxes: np.ndarray) -> None:
    height, width = 60, 90
    crop, box = inception.distorted_bounding_box_crop(tf.constant(coordinates(height, width)), tf.constant(boxes))
    assert crop.dtype == tf.int32
    drawn = draw_many((crop, box), 30)
    for pixels, corners in drawn:
        assert corners.shape == (1, 1, 4)
        top, left, bottom, right = np.rint(corners[0, 0] * [height, width, height, width]).astype(int)
        np.testing.assert_array_equal(pixels, coordinates(height, width)[top:bottom, left:right])
    assert len({pixels.shape for pixels, _ in drawn}) > 10


def test_distorted_bounding_box_crop_passes_its_ranges_on() -> None:
    image = tf.constant(coordinates(100, 100))
    crop, _ = inception.distorted_bounding_box_crop(image, tf.constant(WHOLE), 0.5, (0.99, 1.01), (0.6, 0.7), 50)
    for pixels in draw_many(crop, 30):
        assert 77 <= pixels.shape[0] <= 84  # the roots of 0.6 and 0.7
        assert abs(pixels.shape[0] - pixels.shape[1]) <= 1


def test_the_smallest_area_and_the_aspect_ratio_of_training_can_be_set() -> None:
    shape, boxes = tf.constant([400, 400, 3]), tf.constant(WHOLE)
    distortion = inception.draw_distortion(shape, boxes, crop_area_min=0.5, crop_aspect_ratio_max=1.1)
    crops = draw_many(distortion.crop, 200)
    areas = [crop.height * crop.width / 400**2 for crop in crops]
    ratios = [crop.width / crop.height for crop in crops]
    assert 0.49 <= min(areas) < 0.6
    assert max(areas) > 0.9
    assert 1 / 1.11 <= min(ratios) < 0.93
    assert 1.07 < max(ratios) <= 1.11


# Resize and flip.


def method_index(method: str) -> int:
    return inception.RESIZE_METHODS.index(getattr(tf.image.ResizeMethod, method))


@pytest.mark.parametrize('in_graph', [False, True])
@pytest.mark.parametrize('size', [(30, 50), (61, 47), (150, 225), (300, 451), (301, 500)])
def test_bilinear_does_not_align_corners(size: Tuple[int, int], in_graph: bool) -> None:
    index = tf.constant(method_index('BILINEAR'))
    if in_graph:
        index = tf.compat.v1.placeholder_with_default(index, [])
    resized = inception.apply_resize(tf.constant(CAT / 255.0, tf.float32), *size, index)
    assert resized.shape.as_list() == [*size, 3]
    np.testing.assert_allclose(evaluate(resized), resize_bilinear(CAT / 255.0, *size), atol=1e-5)


@pytest.mark.parametrize('size', [(60, 60), (299, 299), (300, 451), (500, 700)])
@pytest.mark.parametrize('index', range(4))
def test_bytes_are_resized_as_the_same_floats_are(size: Tuple[int, int], index: int) -> None:
    """Whether they are converted before or in the kernel, which depends on the size."""
    of_bytes = inception.apply_resize(tf.constant(CAT), *size, index)
    assert of_bytes.dtype == tf.float32
    of_floats = tf.compat.v1.image.resize(tf.constant(CAT, tf.float32), size, inception.RESIZE_METHODS[index])
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
def test_each_method_enlarges_an_edge_as_it_is_known_to(method: str, by_hand: List[float]) -> None:
    edge = tf.constant(np.broadcast_to([[[0], [0], [1], [1]]], [4, 4, 3]), tf.float32)
    index = tf.compat.v1.placeholder_with_default(method_index(method), [])
    resized = evaluate(inception.apply_resize(edge, 8, 8, index))
    np.testing.assert_allclose(resized, np.broadcast_to(np.reshape(by_hand, [1, 8, 1]), [8, 8, 3]), atol=1e-6)


def test_area_averages_when_it_shrinks() -> None:
    image = CAT[:300, :450] / 255.0
    resized = evaluate(
        inception.apply_resize(tf.constant(image, tf.float32), 100, 90, tf.constant(method_index('AREA')))
    )
    np.testing.assert_allclose(resized, image.reshape([100, 3, 90, 5, 3]).mean(axis=(1, 3)), atol=1e-5)


def test_fast_mode_is_always_bilinear_in_ordering_0() -> None:
    for use_fast_color_distort in (True, False):
        drawn = inception.draw_distortion(
            tf.constant([30, 30, 3]), tf.constant(WHOLE), use_fast_color_distort=use_fast_color_distort
        )
        values = draw_many((drawn.resize_method, drawn.color_ordering), 50)
        assert set(values) == {(method_index('BILINEAR'), 0)}


def test_full_mode_takes_every_method_with_every_ordering() -> None:
    drawn = inception.draw_distortion(
        tf.constant([30, 30, 3]), tf.constant(WHOLE), fast_mode=False, use_fast_color_distort=False
    )
    values = draw_many((drawn.resize_method, drawn.color_ordering), 800)
    counts = np.zeros([4, 4])
    np.add.at(counts, tuple(np.transpose(values)), 1)
    # 50 of each pair on average; four standard deviations.
    assert counts.min() > 22
    assert counts.max() < 78


def test_half_of_the_images_are_mirrored() -> None:
    shape = tf.constant([30, 30, 3])
    mirrored = inception.draw_distortion(shape, tf.constant(WHOLE)).flip
    never = inception.draw_distortion(shape, tf.constant(WHOLE), random_flip=False).flip
    flips = np.array(draw_many((mirrored, never), 400))
    assert 160 < flips[:, 0].sum() < 240
    assert flips[:, 1].sum() == 0


def test_a_flip_is_an_exact_mirror() -> None:
    whole = inception.Crop(0, 0, 300, 451)
    images = [
        inception.apply_distortion(
            tf.constant(CAT),
            inception.Distortion(whole, tf.constant(0), tf.constant(flip), inception.FastColor(0.0, 0.0, 0.0), 0),
            70,
            90,
        )
        for flip in (False, True)
    ]
    plain, mirrored = evaluate(images)
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])
    assert np.abs(mirrored - plain).max() > 0.5


# The whole of the training preprocessing.


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
@pytest.mark.parametrize('size', [(64, 48), (299, 299)])
def test_a_drawn_distortion_applies_as_documented(size: Tuple[int, int], dtype: type) -> None:
    pixels = CAT if dtype == np.uint8 else (CAT / 255.0).astype(np.float32)
    image = tf.compat.v1.placeholder_with_default(pixels, [None, None, 3])
    distortion = inception.draw_distortion(tf.shape(image), tf.constant(WHOLE))
    result = inception.apply_distortion(image, distortion, *size)
    assert (result.dtype, result.shape.as_list()) == (tf.float32, [*size, 3])
    for drawn, distorted in draw_many((distortion, result), 6):
        top, left, height, width = drawn.crop
        by_hand = resize_bilinear(CAT[top : top + height, left : left + width] / 255.0, *size)
        if drawn.flip:
            by_hand = by_hand[:, ::-1]
        b, cb, cr = drawn.color
        by_hand = np.add(by_hand, [1.402 * cr + b, -0.344136 * cb - 0.714136 * cr + b, 1.772 * cb + b])
        np.testing.assert_allclose(distorted, (np.clip(by_hand, 0, 1) - 0.5) * 2, atol=1e-5)


def test_a_full_distortion_applies_the_drawn_method_and_ordering() -> None:
    pixels = CAT[120:140, 200:230]
    image = tf.constant(pixels)
    distortion = inception.draw_distortion(
        tf.shape(image), tf.constant(WHOLE), fast_mode=False, use_fast_color_distort=False
    )
    result = inception.apply_distortion(image, distortion, 10, 12, fast_mode=False)
    orderings = set()
    for drawn, distorted in draw_many((distortion, result), 60):
        if drawn.resize_method != method_index('BILINEAR'):
            continue
        top, left, height, width = drawn.crop
        by_hand = resize_bilinear(pixels[top : top + height, left : left + width] / 255.0, 10, 12)
        by_hand = full_color(
            by_hand[:, ::-1] if drawn.flip else by_hand, drawn.color, FULL_ORDERS[drawn.color_ordering]
        )
        np.testing.assert_allclose(distorted, (by_hand - 0.5) * 2, atol=2e-5)
        orderings.add(int(drawn.color_ordering))
    assert orderings == {0, 1, 2, 3}


SETTINGS = [
    {},
    {'fast_mode': False},
    {'use_fast_color_distort': False},
    {'fast_mode': False, 'use_fast_color_distort': False},
    {'cb_distortion_range': 0.0, 'cr_distortion_range': 0.3, 'random_flip': False},
    {'crop_area_min': 0.9, 'crop_aspect_ratio_max': 1.5},
]


@pytest.mark.parametrize('settings', SETTINGS)
def test_preprocess_for_train_draws_and_applies(settings: Any) -> None:
    def build(documented: bool) -> tf.Tensor:
        image, boxes = tf.constant(CAT), tf.constant(BOXES)
        if documented:
            return inception.preprocess_for_train(image, 40, 30, boxes, **settings)
        distortion = inception.draw_distortion(tf.shape(image), boxes, **settings)
        return inception.apply_distortion(image, distortion, 40, 30, settings.get('fast_mode', True))

    documented, composed = (in_new_graph(build, 6, d) for d in (True, False))
    np.testing.assert_array_equal(documented, composed)
    assert np.abs(documented[0] - documented[1]).max() > 0.1


@pytest.mark.parametrize('settings', SETTINGS)
@pytest.mark.parametrize('pixels', [CAT, skimage.data.rocket()[:, 60:300], CAT[:1, :1], CAT[:1], CAT[:200, :2]])
def test_training_images_are_within_minus_1_and_1(pixels: np.ndarray, settings: Any) -> None:
    image = tf.compat.v1.placeholder_with_default(pixels, [None, None, 3])
    distorted = inception.preprocess_for_train(image, 20, 25, tf.constant(NO_BOXES), **settings)
    assert (distorted.dtype, distorted.shape.as_list()) == (tf.float32, [20, 25, 3])
    values = np.array(draw_many(distorted, 8))
    assert values.min() >= -1
    assert values.max() <= 1
    assert values.std() > 0


def test_uint8_and_float_images_are_trained_on_alike() -> None:
    of_bytes, of_floats = (
        in_new_graph(lambda p: inception.preprocess_for_train(tf.constant(p), 50, 60, tf.constant(WHOLE)), 4, pixels)
        for pixels in (CAT, (CAT / 255.0).astype(np.float32))
    )
    np.testing.assert_allclose(of_bytes, of_floats, atol=1e-6)


# Evaluation.


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
@pytest.mark.parametrize('static', [True, False])
@pytest.mark.parametrize(
    ('shape', 'fraction', 'begin'),
    [
        # Where the crop begins: half of the eighth that goes, rounded down.
        ((300, 451), 0.875, (18, 28)),
        ((300, 451), 1.0, (0, 0)),
        ((300, 451), 0.5, (75, 112)),
        ((280, 33), 0.875, (17, 2)),
        ((24, 31), 0.875, (1, 1)),
        ((8, 15), 0.875, (0, 0)),
        ((1, 1), 0.875, (0, 0)),
    ],
)
def test_evaluation_crops_centrally_and_resizes_bilinearly(
    shape: Tuple[int, int], fraction: float, begin: Tuple[int, int], static: bool, dtype: type
) -> None:
    pixels = CAT[: shape[0], : shape[1]]
    image = pixels if dtype == np.uint8 else (pixels / 255.0).astype(np.float32)
    tensor = tf.constant(image) if static else tf.compat.v1.placeholder_with_default(image, [None, None, 3])
    prepared = inception.preprocess_for_eval(tensor, 37, 53, fraction)
    assert (prepared.dtype, prepared.shape.as_list()) == (tf.float32, [37, 53, 3])
    cropped = pixels[begin[0] : shape[0] - begin[0], begin[1] : shape[1] - begin[1]] / 255.0
    np.testing.assert_allclose(evaluate(prepared), (resize_bilinear(cropped, 37, 53) - 0.5) * 2, atol=1e-5)


def test_evaluation_keeps_seven_eighths_by_default() -> None:
    default, explicit = evaluate(
        inception.preprocess_for_eval(tf.constant(CAT), 60, 60),
        inception.preprocess_for_eval(tf.constant(CAT), 60, 60, central_fraction=0.875),
    )
    np.testing.assert_array_equal(default, explicit)


def test_black_and_white_become_minus_1_and_1() -> None:
    image = np.repeat([[0], [255]], 8, axis=1)[:, :, np.newaxis].repeat(3, axis=2).astype(np.uint8)
    prepared = evaluate(inception.preprocess_for_eval(tf.constant(image), 2, 2, central_fraction=1.0))
    np.testing.assert_allclose(prepared[:, :, 0], [[-1, -1], [1, 1]], atol=1e-6)
