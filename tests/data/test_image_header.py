"""Headers and EXIF orientations of real images of many kinds, against Pillow and TensorFlow; and PPM images."""

import io
import random
import struct
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import skimage.data

from console.tensorflow_versions import tf
from data import exif, ppm
from data.image_header import ImageHeader, read_header
from preprocessing.decoding import decode_image
from tests.support.graphs import evaluate
from tests.support.photos import Photo

CAT = PIL.Image.fromarray(skimage.data.chelsea())  # 451 x 300


def saved(image: PIL.Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack('>BBH', 0xFF, marker, 2 + len(content)) + content


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG with an additional segment before all others."""
    return jpeg[:2] + segment(marker, content) + jpeg[2:]


JPEG = saved(CAT, 'JPEG')
GREY_16 = PIL.Image.fromarray(np.asarray(CAT.convert('L')).astype(np.uint16) * 257)
THUMBNAIL = saved(CAT.resize((32, 24)), 'JPEG')
IMAGES: Dict[str, Tuple[bytes, str, bool]] = {
    'JPEG': (JPEG, 'JPEG', True),
    'grey JPEG': (saved(CAT.convert('L'), 'JPEG'), 'JPEG, grey', True),
    'CMYK JPEG': (saved(CAT.convert('CMYK'), 'JPEG'), 'JPEG, CMYK', True),
    'progressive JPEG': (saved(CAT, 'JPEG', progressive=True), 'JPEG, progressive', True),
    'RGB JPEG': (with_segment(JPEG, 0xEE, b'Adobe\0d\0\0\0\0\0'), 'JPEG, RGB', True),
    'YCbCr JPEG of Adobe': (with_segment(JPEG, 0xEE, b'Adobe\0d\0\0\0\0\1'), 'JPEG', True),
    'JPEG with a thumbnail': (with_segment(JPEG, 0xE1, b'Exif\0\0' + THUMBNAIL), 'JPEG', True),
    'JPEG with fill bytes': (JPEG[:2] + b'\xff\xff' + JPEG[2:], 'JPEG', True),
    'JPEG and more': (JPEG + bytes(100), 'JPEG', True),
    'PNG': (saved(CAT, 'PNG'), 'PNG', True),
    'grey PNG': (saved(CAT.convert('L'), 'PNG'), 'PNG, grey', True),
    'palette PNG': (saved(CAT.quantize(16), 'PNG'), 'PNG, palette', True),
    'transparent PNG': (saved(CAT.convert('RGBA'), 'PNG'), 'PNG, transparency', True),
    'PNG of 16 bits': (saved(GREY_16, 'PNG'), 'PNG, grey, 16 bits', True),
    'PNG and more': (saved(CAT, 'PNG') + bytes(100), 'PNG', True),
    'GIF': (saved(CAT.quantize(16), 'GIF'), 'GIF', False),
}


@pytest.mark.parametrize('name', IMAGES)
def test_header__agrees_with_the_decoder(name: str) -> None:
    encoded, kind, sound = IMAGES[name]
    header = read_header(encoded)
    assert header is not None
    assert (header.kind, header.sound) == (kind, sound)
    assert (header.width, header.height) == (451, 300)
    with tf.Session() as session:
        assert session.run(decode_image(tf.constant(encoded))).shape == (300, 451, 3)


@pytest.mark.parametrize('name', [name for name, (_, _, sound) in IMAGES.items() if sound and 'more' not in name])
def test_truncated_images__are_not_sound(name: str) -> None:
    encoded, _, _ = IMAGES[name]
    for length in [len(encoded) - 1, len(encoded) - 5, *range(0, len(encoded), 997)]:
        header = read_header(encoded[:length])
        assert header is None or not header.sound, length


def chunks_of(png: bytes) -> Iterator[bytes]:
    place = 8
    while place < len(png):
        end = place + 12 + int.from_bytes(png[place : place + 4], 'big')
        yield png[place:end]
        place = end


def rearranged(png: bytes, *kinds: bytes) -> bytes:
    """A PNG with only the chunks of the given kinds, in the given order."""
    return png[:8] + b''.join(chunk for kind in kinds for chunk in chunks_of(png) if chunk[4:8] == kind)


def changed(png: bytes, kind: bytes, place: int) -> bytes:
    """A PNG with a flipped bit in the first chunk of a kind, at a position after its name."""
    at = png.index(kind) + 4 + place
    return png[:at] + bytes([png[at] ^ 1]) + png[at + 1 :]


PNG, PALETTE_PNG = IMAGES['PNG'][0], IMAGES['palette PNG'][0]
BROKEN_PNGS = {
    'pixels changed': changed(PNG, b'IDAT', 5000),
    'palette changed': changed(PALETTE_PNG, b'PLTE', 7),
    'without a palette': rearranged(PALETTE_PNG, b'IHDR', b'IDAT', b'IEND'),
    'palette after the pixels': rearranged(PALETTE_PNG, b'IHDR', b'IDAT', b'PLTE', b'IEND'),
    'without pixels': rearranged(PNG, b'IHDR', b'IEND'),
}


@pytest.mark.parametrize('name', BROKEN_PNGS)
def test_pngs_of_damaged_or_missing_chunks_are_not_sound(name: str) -> None:
    encoded = BROKEN_PNGS[name]
    header = read_header(encoded)
    assert header is not None
    assert (header.format, header.width, header.height, header.sound) == ('PNG', 451, 300, False)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(decode_image(tf.constant(encoded)))


def with_bytes(encoded: bytes, at: int, content: bytes) -> bytes:
    return encoded[:at] + content + encoded[at + len(content) :]


FRAME, TABLE = JPEG.index(b'\xff\xc0'), JPEG.index(b'\xff\xdb')
OF_RGB = with_bytes(with_bytes(with_bytes(JPEG, FRAME + 10, b'R'), FRAME + 13, b'G'), FRAME + 16, b'B')
HEADERS = {
    'PPM': (saved(CAT, 'PPM'), ImageHeader('PPM', (), 451, 300, False)),
    'PPM with comments': (b'P6# 1 1\r451\t#\n300 255\n', ImageHeader('PPM', (), 451, 300, False)),
    # Left to the decoder.
    'lossless JPEG': (with_bytes(JPEG, FRAME + 1, b'\xc3'), ImageHeader('JPEG', (), 451, 300, False)),
    'JPEG of 12 bits': (with_bytes(JPEG, FRAME + 4, b'\x0c'), ImageHeader('JPEG', (), 451, 300, False)),
    'JPEG of RGB components': (OF_RGB, ImageHeader('JPEG', ('RGB',), 451, 300, True)),
    **{
        f'JPEG of {width} x {height}': (
            with_bytes(JPEG, FRAME + 5, struct.pack('>HH', height, width)),
            ImageHeader('JPEG', (), width, height, sound),
        )
        for width, height, sound in ((10_000, 10_000, True), (10_001, 10_000, False), (0, 300, False))
    },
    # Between segments, markers without a length are skipped, and other bytes left to the decoder.
    'JPEG with TEM': (JPEG[:2] + b'\xff\x01' + JPEG[2:], read_header(JPEG)),
    'JPEG with RST0': (JPEG[:2] + b'\xff\xd0' + JPEG[2:], read_header(JPEG)),
    'JPEG with another byte': (JPEG[:TABLE] + b'\0' + JPEG[TABLE:], None),
    **{
        str(other): (other, None)
        for other in (
            *(b'', b'\xff', b'\xff\xd8', b'\xff\xd8\0', b'GIF89a', b'not an image', bytes(999), saved(CAT, 'BMP')),
        )
    },
}


@pytest.mark.parametrize('name', HEADERS)
def test_header__of_unusual_files(name: str) -> None:
    encoded, header = HEADERS[name]
    assert read_header(encoded) == header


SMALL = CAT.resize((30, 20))
SMALL_JPEG = saved(SMALL, 'JPEG')
ORIENTATION_TAG = 0x0112


def rotated(kind: str, value: int) -> bytes:
    block = PIL.Image.Exif()
    block[ORIENTATION_TAG] = value
    return saved(SMALL, kind, exif=block.tobytes())


def with_block(block: bytes, jpeg: bytes = SMALL_JPEG) -> bytes:
    """A JPEG file with an EXIF block."""
    content = b'Exif\0\0' + block
    return jpeg[:2] + b'\xff\xe1' + (len(content) + 2).to_bytes(2, 'big') + content + jpeg[2:]


def with_orientation(jpeg: bytes, value: int) -> bytes:
    """A JPEG file with an EXIF orientation."""
    return with_block(entry(bytes([0, value, 0, 0])), jpeg)


def entry(value: bytes, kind: bytes = b'\0\3', count: bytes = b'\0\0\0\1') -> bytes:
    return b'MM\0*\0\0\0\x08\0\1\x01\x12' + kind + count + value


@pytest.mark.parametrize('kind', ['JPEG', 'PNG'])
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
