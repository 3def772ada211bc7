"""Tests of the Inception preprocessing against NumPy: steps by hand, draws against their documented ranges."""

import re
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from compat import tf
from preprocessing import inception_preprocessing as inception
from preprocessing.color import draw_fast_color
from preprocessing.inception_preprocessing import BILINEAR, InceptionPreprocessing
from preprocessing.steps import Settings
from tests.preprocessing.test_color import FULL_ORDERS, TO_YCBCR, full_color
from tests.support.graphs import draw_many, evaluate, in_new_graph
from tests.support.images import BOXES, CAT, DOCUMENTED_CROP, NO_BOXES, WHOLE, resize_bilinear

FULL = Settings(20, 20, fast_mode=False, use_fast_color_distort=False)


CROP = {**DOCUMENTED_CROP, 'max_attempts': 100}
CHROMA = {'cb_distortion_range': 0.1, 'cr_distortion_range': 0.1}
MODES = {'fast_mode': True, 'use_fast_color_distort': True, 'brightness_distortion_range': 32 / 255}
OTHERS = {'random_flip': True, 'crop_area_min': 0.05, 'crop_aspect_ratio_max': 4 / 3}


@pytest.mark.parametrize(
    ('function', 'arguments', 'documented'),
    [
        (inception.draw_crop, ([300, 400, 3], BOXES), CROP),
        (inception.distorted_bounding_box_crop, (CAT, BOXES), CROP),
        (draw_fast_color, (), CHROMA),
        (inception.distort_color, (np.float32(CAT / 255),), {'color_ordering': 0, 'fast_mode': True}),
        (inception.distort_color_fast, (np.float32(CAT / 255),), CHROMA),
        (inception.preprocess_for_train, (CAT, 30, 40, BOXES), {**CHROMA, **MODES, **OTHERS}),
    ],
)
def test_defaults__are_the_documented_ranges(
    function: Callable[..., Any], arguments: Tuple[Any, ...], documented: Dict[str, Any]
) -> None:
    def build(settings: Dict[str, Any]) -> Any:
        return function(*(tf.constant(a) if isinstance(a, (list, np.ndarray)) else a for a in arguments), **settings)

    for default, explicit in zip(in_new_graph(build, 20, {}), in_new_graph(build, 20, documented)):
        for one, other in zip(default, explicit):
            np.testing.assert_array_equal(one, other)


def test_draw__is_bilinear_with_ordering_0_in_fast_mode() -> None:
    for use_fast_color_distort in (True, False):
        drawn = InceptionPreprocessing(Settings(20, 20, use_fast_color_distort=use_fast_color_distort)).draw(
            tf.constant([30, 30, 3]), tf.constant(WHOLE)
        )
        values = draw_many((drawn.resize_method, drawn.color_ordering), 50)
        assert set(values) == {(BILINEAR, 0)}


def test_draw__draws_every_method_with_every_ordering_in_full_mode() -> None:
    drawn = InceptionPreprocessing(FULL).draw(tf.constant([30, 30, 3]), tf.constant(WHOLE))
    values = draw_many((drawn.resize_method, drawn.color_ordering), 800)
    counts = np.zeros([4, 4])
    np.add.at(counts, tuple(np.transpose(values)), 1)
    # Expected: 50 of each pair; the tolerance is four standard deviations.
    assert counts.min() > 22
    assert counts.max() < 78


# All steps of training.


@pytest.mark.parametrize(
    ('size', 'ranges'), [((64, 48), (0.3, 0.02, 0.1)), ((64, 48), (0.02, 0.1, 0.3)), ((99, 299), (32 / 255, 0.1, 0.1))]
)
def test_of_image__equals_the_documented_steps(size: Tuple[int, int], ranges: Tuple[float, float, float]) -> None:
    image = tf.placeholder_with_default(CAT, [None, None, 3])
    brightness, cb, cr = ranges
    colours: Any = {'brightness_distortion_range': brightness, 'cb_distortion_range': cb, 'cr_distortion_range': cr}
    kind = InceptionPreprocessing(Settings(*size)._replace(**colours))
    distortion = kind.draw(tf.shape(image), tf.constant(WHOLE))
    result = kind.of_image(image, distortion)
    assert (result.dtype, result.shape.as_list()) == (tf.float32, [*size, 3])
    for drawn, distorted in draw_many((distortion, result), 6):
        top, left, height, width = drawn.crop
        by_hand = resize_bilinear(CAT[top : top + height, left : left + width] / 255.0, *size)
        if drawn.flip:
            by_hand = by_hand[:, ::-1]
        # The offsets of red, green and blue are a shift in YCbCr within the ranges.
        assert np.all(np.abs(TO_YCBCR @ drawn.color) <= np.add(ranges, 1e-6))
        by_hand = by_hand + drawn.color
        np.testing.assert_allclose(distorted, (np.clip(by_hand, 0, 1) - 0.5) * 2, atol=1e-5)


def test_of_image__applies_the_drawn_method_and_ordering() -> None:
    # Cyan: TensorFlow's saturation makes some red pixels grey, because their hue is rounded to a full turn.
    pixels = np.random.RandomState(0).randint([40, 120, 120], [80, 200, 200], [20, 30, 3]).astype(np.uint8)
    image = tf.constant(pixels)
    kind = InceptionPreprocessing(FULL._replace(height=10, width=12))
    distortion = kind.draw(tf.shape(image), tf.constant(WHOLE))
    result = kind.of_image(image, distortion)
    orderings = set()
    for drawn, distorted in draw_many((distortion, result), 60):
        if drawn.resize_method != BILINEAR:
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
def test_preprocess_for_train__takes_the_steps_of_the_pipeline(settings: Any) -> None:
    def build(documented: bool) -> tf.Tensor:
        image, boxes = tf.constant(CAT), tf.constant(BOXES)
        if documented:
            return inception.preprocess_for_train(image, 40, 30, boxes, **settings)
        kind = InceptionPreprocessing(Settings(40, 30, use_annotated_bbox=True, **settings))
        return kind.of_image(image, kind.draw(tf.shape(image), boxes))

    documented, of_steps = (in_new_graph(build, 6, d) for d in (True, False))
    np.testing.assert_array_equal(documented, of_steps)
    assert np.abs(documented[0] - documented[1]).max() > 0.1


@pytest.mark.parametrize('settings', SETTINGS[:4:3])
@pytest.mark.parametrize('pixels', [CAT[:, ::4], CAT[:1, :1], CAT[:1], CAT[:200, :2]])
def test_preprocess_for_train__returns_values_from_minus_1_to_1(pixels: np.ndarray, settings: Any) -> None:
    image = tf.placeholder_with_default(pixels, [None, None, 3])
    distorted = inception.preprocess_for_train(image, 20, 25, tf.constant(NO_BOXES), **settings)
    assert (distorted.dtype, distorted.shape.as_list()) == (tf.float32, [20, 25, 3])
    values = np.array(draw_many(distorted, 8))
    assert values.min() >= -1
    assert values.max() <= 1
    assert values.std() > 0


def test_preprocess_for_train__without_boxes_takes_the_whole_image() -> None:
    def build(is_given: bool) -> tf.Tensor:
        # Both graphs have one constant, so their operations have the same seeds.
        return inception.preprocess_for_train(tf.constant(CAT), 40, 30, tf.constant(WHOLE) if is_given else None)

    without, whole = (in_new_graph(build, 4, is_given) for is_given in (False, True))
    np.testing.assert_array_equal(without, whole)


def test_documented_functions__have_the_documented_name_scopes() -> None:
    image, pixels = tf.constant(CAT / 255.0, tf.float32), (tf.constant(CAT), 40, 30)
    for scope in (None, 'mine'):
        outputs = {
            'distort_image': inception.preprocess_for_train(*pixels, None, scope=scope),
            'eval_image': inception.preprocess_for_eval(*pixels, scope=scope),
            'distort_color': inception.distort_color(image, scope=scope),
            'distort_color_1': inception.distort_color_fast(image, scope=scope),
            'distorted_bounding_box_crop': inception.distorted_bounding_box_crop(image, WHOLE, scope=scope)[1],
        }
        for default, output in outputs.items():
            assert re.match(f'{scope}(_[1-9])?/' if scope else f'{default}/', output.op.name), output.op.name


def test_preprocess_for_train__is_equal_for_bytes_and_floats() -> None:
    of_bytes, of_floats = (
        in_new_graph(lambda p: inception.preprocess_for_train(tf.constant(p), 50, 60, tf.constant(WHOLE)), 4, pixels)
        for pixels in (CAT, (CAT / 255.0).astype(np.float32))
    )
    np.testing.assert_allclose(of_bytes, of_floats, atol=1e-6)


# Evaluation.


@pytest.mark.parametrize(
    ('shape', 'fraction', 'begin', 'static', 'dtype'),
    [
        # The crop begins at half of the eighth that is cut off, rounded down.
        ((300, 451), 0.875, (18, 28), True, np.uint8),
        ((300, 451), 1.0, (0, 0), False, np.uint16),
        ((300, 451), 0.5, (75, 112), True, np.float32),
        ((280, 33), 0.875, (17, 2), False, np.uint8),
        ((24, 31), 0.875, (1, 1), True, np.uint16),
        ((8, 15), 0.875, (0, 0), False, np.float32),
        ((1, 1), 0.875, (0, 0), False, np.uint8),
    ],
)
def test_preprocess_for_eval__crops_centrally_and_resizes_bilinearly(
    shape: Tuple[int, int], fraction: float, begin: Tuple[int, int], static: bool, dtype: type
) -> None:
    pixels = CAT[: shape[0], : shape[1]]
    # Integers span the range of their type, and floats are in [0, 1].
    image = (pixels / 255.0 * {np.uint8: 255, np.uint16: 65535, np.float32: 1}[dtype]).round(9).astype(dtype)
    tensor = tf.constant(image) if static else tf.placeholder_with_default(image, [None, None, 3])
    prepared = inception.preprocess_for_eval(tensor, 37, 53, fraction)
    assert (prepared.dtype, prepared.shape.as_list()) == (tf.float32, [37, 53, 3])
    cropped = pixels[begin[0] : shape[0] - begin[0], begin[1] : shape[1] - begin[1]] / 255.0
    np.testing.assert_allclose(evaluate(prepared), (resize_bilinear(cropped, 37, 53) - 0.5) * 2, atol=1e-5)
