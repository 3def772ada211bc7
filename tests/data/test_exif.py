"""Tests of EXIF orientations: all values in all formats, against Pillow, and damaged EXIF data."""

import random

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from data import exif
from tests.data.test_image_header import CAT, saved

SMALL = CAT.resize((30, 20))
SMALL_JPEG = saved(SMALL, 'JPEG')
ORIENTATION_TAG = 0x0112


def rotated(kind: str, value: int) -> bytes:
    block = PIL.Image.Exif()
    block[ORIENTATION_TAG] = value
    return saved(SMALL, kind, exif=block.tobytes())


@pytest.mark.parametrize('value', range(1, 9))
def test_upright__turns_as_pillow_does(value: int) -> None:
    for kind in ('JPEG', 'PNG', 'WEBP'):
        assert exif.orientation(rotated(kind, value)) == value
    image = SMALL.copy()
    image.getexif()[ORIENTATION_TAG] = value
    expected = np.asarray(PIL.ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(exif.upright(np.asarray(SMALL), value), expected)


def with_orientation(jpeg: bytes, value: int) -> bytes:
    """A JPEG file with an EXIF orientation."""
    content = b'Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1' + bytes([0, value, 0, 0])
    return jpeg[:2] + b'\xff\xe1' + (len(content) + 2).to_bytes(2, 'big') + content + jpeg[2:]


@pytest.mark.parametrize(('value', 'expected'), [(6, 6), (0, 1), (9, 1)])
def test_orientation__is_1_to_8(value: int, expected: int) -> None:
    assert exif.orientation(with_orientation(SMALL_JPEG, value)) == expected
    assert exif.orientation(SMALL_JPEG) == 1


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'WEBP'])
def test_orientation__of_damaged_files_is_a_value_and_no_error(kind: str) -> None:
    whole = rotated(kind, 6)
    source = random.Random(1)
    for cut in range(0, min(len(whole), 300)):
        assert exif.orientation(whole[:cut]) in range(1, 9)
    for _ in range(500):
        spoilt = bytearray(whole)
        for _ in range(3):
            spoilt[source.randrange(min(len(whole), 150))] = source.randrange(256)
        assert exif.orientation(bytes(spoilt)) in range(1, 9)
