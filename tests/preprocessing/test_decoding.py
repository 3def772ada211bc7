"""Decoding of real files: what Pillow writes, TensorFlow must read."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
import skimage.data
import tensorflow as tf

from preprocessing.decoding import decode_image
from tests.conftest import evaluate

CAT = PIL.Image.fromarray(skimage.data.chelsea())  # 300 x 451


def file_of(image: PIL.Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def decode(encoded: bytes) -> np.ndarray:
    image = decode_image(tf.constant(encoded))
    assert (image.dtype, image.shape.as_list()) == (tf.uint8, [None, None, 3])
    return evaluate(image)


def with_alpha(image: PIL.Image.Image) -> PIL.Image.Image:
    """The image, more and more transparent towards the right, and wholly so at the left edge."""
    alpha = np.broadcast_to(np.arange(image.width, dtype=np.uint8), [image.height, image.width])
    transparent = image.copy()
    transparent.putalpha(PIL.Image.fromarray(alpha))
    return transparent


@pytest.mark.parametrize('options', [{}, {'progressive': True}, {'subsampling': 0}])
def test_a_jpeg_decodes_to_its_pixels(options: Any) -> None:
    encoded = file_of(CAT, 'JPEG', quality=95, **options)
    decoded = decode(encoded).astype(int)
    # TensorFlow takes the fast cosine transform, Pillow the accurate one: they differ by a grey level or two.
    by_pillow = np.asarray(PIL.Image.open(io.BytesIO(encoded)), int)
    assert np.abs(decoded - by_pillow).mean() < 1.5
    assert np.abs(decoded - by_pillow).max() <= 12
    assert np.abs(decoded - np.asarray(CAT, int)).mean() < 3


def test_a_grey_jpeg_has_three_equal_channels() -> None:
    grey = CAT.convert('L')
    decoded = decode(file_of(grey, 'JPEG', quality=95)).astype(int)
    np.testing.assert_array_equal(decoded, decoded[:, :, :1].repeat(3, axis=2))
    assert np.abs(decoded[:, :, 0] - np.asarray(grey, int)).mean() < 2


def test_a_cmyk_jpeg_keeps_its_colors() -> None:
    decoded = decode(file_of(CAT.convert('CMYK'), 'JPEG', quality=95)).astype(int)
    assert np.abs(decoded - np.asarray(CAT, int)).mean() < 3


@pytest.mark.parametrize(
    'image',
    [CAT, with_alpha(CAT), CAT.quantize(256), CAT.convert('L'), with_alpha(CAT.convert('L')), CAT.convert('1')],
    ids=['rgb', 'rgba', 'palette', 'grey', 'grey with alpha', 'black and white'],
)
def test_a_png_decodes_exactly(image: PIL.Image.Image) -> None:
    # Pillow's conversion drops transparency, too, rather than blend.
    np.testing.assert_array_equal(decode(file_of(image, 'PNG')), np.asarray(image.convert('RGB')))


def test_a_gif_of_one_frame_decodes_exactly() -> None:
    image = CAT.quantize(256)
    np.testing.assert_array_equal(decode(file_of(image, 'GIF')), np.asarray(image.convert('RGB')))


@pytest.mark.parametrize(('file_format', 'tolerance'), [('PNG', 0), ('JPEG', 3)])
def test_one_pixel_decodes(file_format: str, tolerance: int) -> None:
    decoded = decode(file_of(PIL.Image.new('RGB', (1, 1), (200, 100, 50)), file_format))
    np.testing.assert_allclose(decoded.astype(int), [[[200, 100, 50]]], atol=tolerance)


@pytest.mark.parametrize('kept', [0.01, 0.3, 0.6, 0.95])
@pytest.mark.parametrize(
    ('file_format', 'options'), [('JPEG', {}), ('JPEG', {'progressive': True}), ('PNG', {}), ('GIF', {})]
)
def test_a_file_cut_short_is_refused(file_format: str, options: Any, kept: float) -> None:
    encoded = file_of(CAT, file_format, **options)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(encoded[: int(kept * len(encoded))])


@pytest.mark.parametrize('file_format', ['JPEG', 'PNG'])
def test_a_file_without_its_last_bytes_is_refused(file_format: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(file_of(CAT, file_format)[:-2])


@pytest.mark.parametrize(
    'encoded',
    [
        b'',
        b'\xff\xd8\xff',
        b'GIF',
        np.random.RandomState(0).bytes(5000),
        file_of(CAT, 'JPEG')[1:],
        file_of(CAT, 'BMP'),
        file_of(CAT.convert('P'), 'GIF', save_all=True, append_images=[CAT.rotate(90).convert('P')]),
    ],
    ids=['empty', 'only the mark of a JPEG', 'only the mark of a GIF', 'random', 'headless JPEG', 'BMP', 'animation'],
)
def test_what_is_no_image_is_refused(encoded: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(encoded)
