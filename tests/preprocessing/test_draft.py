"""Decoding at a half and a quarter of the sides, against means of blocks of decoded pixels."""

from typing import Any, Dict, NamedTuple

import numpy as np
import PIL.Image
import pytest
import skimage.data

from console.tensorflow_versions import tf
from preprocessing import draft, preprocessings
from preprocessing.decoding import decode_image, image_shape
from preprocessing.preprocessings import Preprocessing, preprocessing_for
from preprocessing.vgg_preprocessing import resized_size
from tests.preprocessing.test_decoding import file_of
from tests.support.graphs import evaluate
from tests.support.tiers import further

# 1,200 x 1,804 pixels, smooth: enlarging leaves no noise that means of blocks would remove.
LARGE = PIL.Image.fromarray(skimage.data.chelsea()).resize((1804, 1200), PIL.Image.BICUBIC)
JPEG = file_of(LARGE, 'JPEG', quality=92)


class Flags(NamedTuple):
    """The part of a configuration that the kinds of preprocessing read."""

    preprocessing: str
    height: int
    width: int
    crop_padding: int = 2
    random_flip: bool = True
    fast_mode: bool = True
    use_fast_color_distort: bool = True
    use_annotated_bbox: bool = False
    cb_distortion_range: float = 0.1
    cr_distortion_range: float = 0.1
    brightness_distortion_range: float = 0.1
    crop_area_min: float = 0.5
    crop_aspect_ratio_max: float = 1.2


def sampled(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The values of an image at positions between its pixels."""
    for axis, places in enumerate([rows, columns]):
        low = np.clip(np.floor(places).astype(int), 0, image.shape[axis] - 2)
        share = np.clip(places - low, 0, 1).reshape([-1, 1, 1] if axis == 0 else [-1, 1])
        image = image.take(low, axis) * (1 - share) + image.take(low + 1, axis) * share
    return image


def means_of_blocks(encoded: bytes, side: int) -> np.ndarray:
    """The means of side x side pixels of a decoded JPEG whose sides are multiples of `side`."""
    whole = evaluate(decode_image(tf.constant(encoded))).astype(float)
    height, width = (length // side for length in whole.shape[:2])
    return whole.reshape([height, side, width, side, 3]).mean((1, 3))


def distance(result: np.ndarray, expected: np.ndarray) -> float:
    """The mean difference without that of a channel's mean: libjpeg rounds every size of block in its own way."""
    differences = result - expected
    bias = differences.mean((0, 1))
    assert np.abs(bias).max() < 1.5
    return float(np.abs(differences - bias).mean())


def drafted(kind: Preprocessing, encoded: bytes, height: int, width: int, distortion: Any = None) -> np.ndarray:
    file = tf.constant(encoded)
    shape = image_shape(file)
    window = kind.crop(shape, distortion)
    return evaluate(draft.decode_and_resize(kind, file, shape, window, height, width))


def plain(kind: Preprocessing, encoded: bytes) -> np.ndarray:
    image = decode_image(tf.constant(encoded))
    window = kind.crop(tf.shape(image))
    crop = evaluate(window.crop)
    pixels = image[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    return evaluate(kind.resize(pixels, window))


# Of the central crop, 1,050 x 1,580 pixels begin at (75, 112): an eighth of the sides is left out.
@pytest.mark.parametrize(('height', 'width', 'reduction'), [(262, 394, 4), (400, 600, 2), (262, 600, 2), (270, 400, 2)])
def test_inception__samples_means_of_blocks_at_the_positions_of_evaluation(
    height: int, width: int, reduction: int
) -> None:
    kind = preprocessing_for(Flags('inception', height, width))
    result = drafted(kind, JPEG, height, width)
    assert result.shape == (height, width, 3)
    means = means_of_blocks(JPEG, reduction)
    rows, columns = 75 + np.arange(height) * (1050 / height), 112 + np.arange(width) * (1580 / width)
    places = [(each - (reduction - 1) / 2) / reduction for each in (rows, columns)]
    # Means of decoded pixels are rounded before they are averaged, the reduced ones after.
    assert distance(result, sampled(means, *places)) < 0.4
    # Positions that are wrong by a quarter of a reduced pixel differ more.
    for wrong in (-0.25, 0.25):
        assert distance(result, sampled(means, places[0] + wrong, places[1])) > 0.5
        assert distance(result, sampled(means, places[0], places[1] + wrong)) > 0.5


def test_vgg__samples_means_of_blocks_at_the_positions_of_evaluation() -> None:
    size, reduction = 224, 4
    kind = preprocessing_for(Flags('vgg', size, size))
    smaller = preprocessings.vgg_preprocessing.resize_range(size, size)[0]
    resized = evaluate(resized_size(tf.constant([1200, 1804, 3]), tf.constant(smaller)))
    begin = (resized - size) // 2
    places = [
        ((first + np.arange(size)) * (side / whole) - (reduction - 1) / 2) / reduction
        for first, side, whole in zip(begin, (1200, 1804), resized)
    ]
    expected = sampled(means_of_blocks(JPEG, reduction), *places)
    assert distance(drafted(kind, JPEG, size, size), expected) < 0.4


def test_cifar__shifts_the_resized_image() -> None:
    size, reduction = 64, 4
    kind = preprocessing_for(Flags('cifar', size, size))
    distortion = preprocessings.cifar_preprocessing.Distortion(tf.constant(3), tf.constant(0), tf.constant(False))
    result = drafted(kind, JPEG, size, size, distortion)
    places = [(np.arange(size) * (side / size) - (reduction - 1) / 2) / reduction for side in (1200, 1804)]
    expected = np.pad(sampled(means_of_blocks(JPEG, reduction), *places), [[2, 2], [2, 2], [0, 0]])
    assert distance(result[:-1, 2:], expected[3 : 2 + size, 2:size]) < 0.4
    assert (result[-1] == 0).all() and (result[:, :2] == 0).all()


@pytest.mark.parametrize('name', ['inception', *map(further, ('vgg', 'cifar'))])
def test_draft__is_close_to_all_pixels_of_a_smooth_photograph(name: str) -> None:
    kind = preprocessing_for(Flags(name, 100, 120))
    differences = drafted(kind, JPEG, 100, 120) - plain(kind, JPEG)
    assert 0 < np.abs(differences).mean() < 2.5 and abs(differences.mean()) < 1


@pytest.mark.parametrize(
    ('encoded', 'size'),
    [
        # The central crop has 1,050 rows, less than twice 526.
        (JPEG, (526, 300)),
        (JPEG, (300, 791)),
        (file_of(LARGE, 'PNG'), (75, 75)),
        (file_of(LARGE.quantize(64), 'GIF'), (75, 75)),
    ],
    ids=['few rows', 'few columns', 'PNG', 'GIF'],
)
def test_draft__decodes_small_windows_and_other_formats_whole(encoded: bytes, size: Any) -> None:
    kind = preprocessing_for(Flags('inception', *size))
    np.testing.assert_array_equal(drafted(kind, encoded, *size), plain(kind, encoded))


@pytest.mark.parametrize('options', [{'progressive': True}, {'subsampling': 0}, {'subsampling': 1}])
def test_draft__decodes_every_kind_of_jpeg(options: Dict[str, Any]) -> None:
    kind = preprocessing_for(Flags('inception', 100, 100))
    encoded = file_of(LARGE.crop((0, 0, 803, 605)), 'JPEG', quality=92, **options)
    assert np.abs(drafted(kind, encoded, 100, 100) - plain(kind, encoded)).mean() < 2


def test_draft__decodes_a_grey_jpeg() -> None:
    kind = preprocessing_for(Flags('inception', 100, 100))
    result = drafted(kind, file_of(LARGE.convert('L'), 'JPEG', quality=92), 100, 100)
    np.testing.assert_array_equal(result, result[..., :1].repeat(3, 2))


@pytest.mark.parametrize('kept', [0.3, 0.95])
def test_draft__refuses_a_truncated_file(kept: float) -> None:
    kind = preprocessing_for(Flags('inception', 75, 75))
    with pytest.raises(tf.errors.InvalidArgumentError):
        drafted(kind, JPEG[: int(kept * len(JPEG))], 75, 75)


@pytest.mark.parametrize('reduction', draft.REDUCTIONS)
@pytest.mark.parametrize('sides', [(8, 9), (11, 14), (101, 67)])
def test_reduced_window__lies_inside_the_reduced_image(reduction: int, sides: Any) -> None:
    height, width = sides
    for top, bottom in ((0.0, height - 1.0), (0.5, height - 2.5), (1.0, height / 2)):
        positions = tf.constant([top, 0.0, bottom, width - 1.0], tf.float64)
        crop, box = evaluate(*draft.reduced_window(positions, tf.constant([height, width, 3]), reduction))
        assert min(crop[:2]) >= 0 and min(crop[2:]) >= 1
        assert crop[0] + crop[2] <= -(-height // reduction) and crop[1] + crop[3] <= -(-width // reduction)
        assert min(box) > -0.5 and box[2] <= crop[2] - 1 and box[3] <= crop[3] - 1
        np.testing.assert_allclose(crop[0] + box[0], (top - (reduction - 1) / 2) / reduction, atol=1e-6)


def test_reduced_window__rounds_the_sides_of_the_reduced_image_up() -> None:
    # Of nine pixels, the halves are five. The position 8 lies three quarters of the way from the fourth to the fifth.
    positions = tf.constant([0.0, 0.0, 8.0, 7.0], tf.float64)
    crop, box = evaluate(*draft.reduced_window(positions, tf.constant([9, 8, 3]), 2))
    assert [*crop] == [0, 0, 5, 4]
    assert box.tolist() == [-0.25, -0.25, 3.75, 3.0]
