"""Headers of real images of many kinds, against Pillow and TensorFlow; and PPM images."""

from typing import Dict, List, Tuple

import numpy as np
import PIL.Image
import pytest

from compat import tf
from data import ppm
from preprocessing.decoding import decode_image
from tests.support import images
from tests.support.graphs import evaluate
from tests.support.images import saved, with_bytes, with_segment
from tests.support.photos import Photo
from tools.image_header import ImageHeader, read_header

CAT = PIL.Image.fromarray(images.CAT)  # 451 x 300
JPEG = saved(CAT, 'JPEG')
GREY_16 = PIL.Image.fromarray(np.asarray(CAT.convert('L')).astype(np.uint16) * 257)
THUMBNAIL = saved(CAT.resize((32, 24)), 'JPEG')
IMAGES: Dict[str, Tuple[bytes, str]] = {
    'JPEG': (JPEG, 'JPEG'),
    'grey JPEG': (saved(CAT.convert('L'), 'JPEG'), 'JPEG, grey'),
    'CMYK JPEG': (saved(CAT.convert('CMYK'), 'JPEG'), 'JPEG, CMYK'),
    'progressive JPEG': (saved(CAT, 'JPEG', progressive=True), 'JPEG, progressive'),
    'JPEG with a thumbnail': (with_segment(JPEG, 0xE1, b'Exif\0\0' + THUMBNAIL), 'JPEG'),
    'JPEG with fill bytes': (JPEG[:2] + b'\xff\xff' + JPEG[2:], 'JPEG'),
    'PNG': (saved(CAT, 'PNG'), 'PNG'),
    'grey PNG': (saved(CAT.convert('L'), 'PNG'), 'PNG, grey'),
    'palette PNG': (saved(CAT.convert('P'), 'PNG'), 'PNG, palette'),
    'transparent PNG': (saved(CAT.convert('RGBA'), 'PNG'), 'PNG, transparency'),
    'PNG of 16 bits': (saved(GREY_16, 'PNG'), 'PNG, grey, 16 bits'),
    'GIF': (saved(CAT.convert('P'), 'GIF'), 'GIF'),
}


@pytest.mark.parametrize('name', IMAGES)
def test_header__agrees_with_the_decoder(name: str) -> None:
    encoded, kind = IMAGES[name]
    header = read_header(encoded)
    assert header is not None and header.kind == kind
    assert (header.width, header.height) == (451, 300)
    with tf.Session() as session:
        assert session.run(decode_image(tf.constant(encoded))).shape == (300, 451, 3)


PNG = IMAGES['PNG'][0]


FRAME, TABLE = JPEG.index(b'\xff\xc0'), JPEG.index(b'\xff\xdb')
HEADERS = {
    'PPM': (saved(CAT, 'PPM'), ImageHeader('PPM', (), 451, 300)),
    'PPM with comments': (b'P6# 1 1\r451\t#\n300 255\n', ImageHeader('PPM', (), 451, 300)),
    # Left to the decoder.
    'lossless JPEG': (with_bytes(JPEG, FRAME + 1, b'\xc3'), ImageHeader('JPEG', (), 451, 300)),
    # Tables and a reserved marker, which begin no frame.
    **{
        f'JPEG with {marker:x}': (with_segment(JPEG, marker, bytes(20)), read_header(JPEG))
        for marker in (0xC4, 0xC8, 0xCC)
    },
    # Between segments, markers without a length are skipped, and other bytes left to the decoder.
    'JPEG with TEM': (JPEG[:2] + b'\xff\x01' + JPEG[2:], read_header(JPEG)),
    'JPEG with RST0': (JPEG[:2] + b'\xff\xd0' + JPEG[2:], read_header(JPEG)),
    'JPEG with another byte': (JPEG[:TABLE] + b'\0' + JPEG[TABLE:], None),
    **{
        str(other): (other, None)
        for other in (
            *(b'', b'\xff', b'\xff\xd8', b'\xff\xd8\0', b'GIF89a', b'not an image', bytes(99), saved(CAT, 'BMP')[:99]),
        )
    },
}


@pytest.mark.parametrize('name', HEADERS)
def test_header__has_the_size_in_unusual_files_and_none_in_others(name: str) -> None:
    encoded, header = HEADERS[name]
    assert read_header(encoded) == header


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
