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
    block = SMALL.getexif()
    block[ORIENTATION_TAG] = value
    image = SMALL.copy()
    image.getexif()[ORIENTATION_TAG] = value
    expected = np.asarray(PIL.ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(exif.upright(np.asarray(SMALL), value), expected)


def with_block(block: bytes, jpeg: bytes = SMALL_JPEG) -> bytes:
    """A JPEG file with an EXIF block."""
    content = b'Exif\0\0' + block
    return jpeg[:2] + b'\xff\xe1' + (len(content) + 2).to_bytes(2, 'big') + content + jpeg[2:]


def with_orientation(jpeg: bytes, value: int) -> bytes:
    """A JPEG file with an EXIF orientation."""
    return with_block(entry(bytes([0, value, 0, 0])), jpeg)


def entry(value: bytes, kind: bytes = b'\0\3', count: bytes = b'\0\0\0\1') -> bytes:
    return b'MM\0*\0\0\0\x08\0\1\x01\x12' + kind + count + value


@pytest.mark.parametrize(
    ('block', 'expected'),
    [
        (entry(b'\0\6\0\0'), 6),
        (b'II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x08\0\0\0', 8),
        (entry(b'\0\0\0\0'), 1),
        (entry(b'\0\x09\0\0'), 1),
        (entry(b'\0\6\0\0', kind=b'\0\4'), 1),
        (entry(b'\0\6\0\0', count=b'\xff\xff\xff\xff'), 1),
        (b'MM\0*\xff\xff\xff\xff', 1),
        (b'XX', 1),
    ],
)
def test_orientation__of_unusual_blocks(block: bytes, expected: int) -> None:
    assert exif.orientation(with_block(block)) == expected


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'WEBP'])
def test_orientation__is_read_from_every_format__and_of_damaged_files_is_a_value_and_no_error(kind: str) -> None:
    assert [exif.orientation(rotated(kind, value)) for value in range(1, 9)] == [*range(1, 9)]
    whole = rotated(kind, 6)
    source = random.Random(1)
    for cut in range(0, min(len(whole), 300)):
        assert exif.orientation(whole[:cut]) in range(1, 9)
    for _ in range(500):
        spoilt = bytearray(whole)
        for _ in range(3):
            spoilt[source.randrange(min(len(whole), 150))] = source.randrange(256)
        assert exif.orientation(bytes(spoilt)) in range(1, 9)


@pytest.mark.parametrize('length', [4, 5])
def test_orientation__follows_a_webp_chunk_of_odd_length(length: int) -> None:
    chunks = [(b'VP8X', bytes(length)), (b'EXIF', entry(b'\0\6\0\0'))]
    content = b''.join(name + len(data).to_bytes(4, 'little') + data + bytes(len(data) % 2) for name, data in chunks)
    assert exif.orientation(b'RIFF' + (4 + len(content)).to_bytes(4, 'little') + b'WEBP' + content) == 6
