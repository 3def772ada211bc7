"""Conversion of PPM images for the decoder of TensorFlow."""

from typing import List

import numpy as np
import pytest

from console.tensorflow_versions import tf
from data import ppm
from preprocessing.decoding import decode_image
from tests.support.graphs import evaluate
from tests.support.photos import Photo


@pytest.mark.parametrize('head', [b'P6\n%d %d\n255\n', b'P6 # by me\n# \xc3\xa9\n%d\t%d # wide, high\n 255 '])
def test_ppm_images_are_decoded(head: bytes, photos: List[Photo]) -> None:
    pixels = photos[3].pixels
    height, width, _ = pixels.shape
    content = head % (width, height) + pixels.tobytes()
    np.testing.assert_array_equal(evaluate(decode_image(ppm.as_png(tf.constant(content)))), pixels)
    # Pixels whose bytes are white space and digits.
    np.testing.assert_array_equal(
        evaluate(decode_image(ppm.as_png(tf.constant(b'P6 2 1 255\n \n9 \t5')))), [[[32, 10, 57], [32, 9, 53]]]
    )


@pytest.mark.parametrize('content', [b'P6', b'P6 2 1 65535\n' + b'x' * 12, b'P6 2 1 255\n12345', b'P6 0 1 255\n'])
def test_other_ppm_images_are_refused(content: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match='PPM'):
        evaluate(ppm.as_png(tf.constant(content)))


def test_groups_are_converted_image_by_image(photos: List[Photo]) -> None:
    files = [b'P6 2 1 255\n \n9 \t5', photos[0].encoded, b'P6 1 1 255\n123']
    assert evaluate(ppm.as_png(tf.constant(files))).tolist() == [
        evaluate(ppm.as_png(tf.constant(file))) for file in files
    ]
    assert evaluate(ppm.as_png(tf.constant(files[1:2]))).tolist() == files[1:2]
    assert evaluate(ppm.as_png(tf.constant(files[1]))) == files[1]
    assert evaluate(ppm.as_png(tf.constant(b''))) == b''
