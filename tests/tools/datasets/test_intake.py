"""Tests of the judgement of users' images: pixels against Pillow, notes, refusals and damage."""

import io
import random
import sys
from typing import Any, Iterator

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from compat import tf
from tests.support.images import ORIENTATION_TAG, saved
from tests.tools.test_image_header import CAT
from tools.datasets.intake import LAID_ON_WHITE, REDUCED, TURNED, Intake
from tools.image_files import UnreadableError

SMALL = CAT.resize((90, 60))
CONVERTED = 'converted from TIFF'


@pytest.fixture(scope='module')
def intake() -> Iterator[Intake]:
    made = Intake()
    yield made
    made.close()


def pixels_of(encoded: bytes) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.image.decode_image(tf.constant(encoded), channels=3)).astype(int)


@pytest.mark.parametrize(
    'encoded',
    [
        saved(SMALL, 'JPEG'),
        saved(SMALL.convert('L'), 'JPEG'),
        saved(SMALL.convert('CMYK'), 'JPEG'),
        saved(SMALL, 'PNG'),
        saved(SMALL.quantize(9), 'PNG'),
        saved(SMALL.convert('RGBA'), 'PNG'),
        saved(SMALL, 'JPEG', 1),
    ],
)
def test_usual_images_are_kept_byte_for_byte(encoded: bytes, intake: Intake) -> None:
    accepted, pixels = intake.accept_and_decode(encoded)
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        assert accepted == (encoded, image.height, image.width, ())
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, pixels_of(encoded))


@pytest.mark.parametrize('value', range(2, 9))
def test_images_are_turned_upright(value: int, intake: Intake) -> None:
    accepted, pixels = intake.accept_and_decode(saved(SMALL, 'JPEG', value))
    assert accepted.notes == (TURNED,) and accepted == intake.accept(saved(SMALL, 'JPEG', value))
    # The pixels are those of the accepted file.
    np.testing.assert_array_equal(pixels, pixels_of(accepted.encoded))
    as_stored = pixels_of(saved(SMALL, 'JPEG', 1))
    image = PIL.Image.fromarray(as_stored.astype(np.uint8))
    image.getexif()[ORIENTATION_TAG] = value
    expected = np.asarray(PIL.ImageOps.exif_transpose(image)).astype(int)
    assert expected.shape == (accepted.height, accepted.width, 3)
    assert np.abs(pixels_of(accepted.encoded) - expected).mean() <= 3
    # Colours have the resolution of the pixels.
    with PIL.Image.open(io.BytesIO(accepted.encoded)) as made:
        assert [each[1:3] for each in made.layer] == [(1, 1)] * 3
    # A second pass leaves it alone: the orientation is no longer in the file.
    assert intake.accept(accepted.encoded).notes == ()


@pytest.mark.parametrize('kind', ['PNG', 'palette', 'WEBP', 'RGBA', 'LA'])
def test_transparent_images_are_laid_on_white(kind: str, intake: Intake) -> None:
    image = SMALL.convert('RGBA')
    image.putalpha(PIL.Image.linear_gradient('L').resize(SMALL.size))
    encoded = saved(image, 'PNG') if kind != 'WEBP' else saved(image, 'WEBP', lossless=True, exact=True)
    if kind in ('RGBA', 'LA'):
        encoded = saved(image.convert(kind), 'TIFF')
        image = image.convert(kind).convert('RGBA')
    if kind == 'palette':
        image = SMALL.quantize(9)
        encoded = saved(image, 'PNG', transparency=3)
        image.info['transparency'] = 3
        image = image.convert('RGBA')
    rgba = np.asarray(image).astype(int)
    alpha = rgba[..., 3:]
    # Rounded to the nearest.
    expected = np.rint((rgba[..., :3] * alpha + 255 * (255 - alpha)) / 255)
    accepted, decoded = intake.accept_and_decode(encoded)
    assert LAID_ON_WHITE in accepted.notes
    np.testing.assert_array_equal(decoded, pixels_of(accepted.encoded))
    if kind == 'WEBP':
        # Encoded again as JPEG.
        assert np.abs(decoded - expected).mean() <= 3
    else:
        np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
    ('kind', 'image', 'orientation', 'tolerance'),
    [
        *(('BMP', SMALL.convert(mode), 1, 0) for mode in ('RGB', 'L', '1')),
        *(('GIF', SMALL.quantize(30), 1, 0), ('WebP', SMALL, 6, 3), ('TIFF', SMALL, 1, 0)),
        *(('TIFF', SMALL.convert(mode), value, 0) for mode, value in (('P', 1), ('L', 6), ('CMYK', 6))),
    ],
)
def test_other_formats_are_converted(kind: str, image: Any, orientation: int, tolerance: int, intake: Intake) -> None:
    # The TIFF file is a page of several, which have files of their own (tag 254).
    of_kind: Any = {'TIFF': {'tiffinfo': {ORIENTATION_TAG: orientation, 254: 2}}, 'WebP': {'lossless': True}}
    encoded = saved(image, kind.upper(), orientation if kind == 'WebP' else 0, **of_kind.get(kind, {}))
    accepted = intake.accept(encoded)
    assert accepted.notes == (f'converted from {kind}',)
    assert accepted.encoded.startswith(b'\xff\xd8' if kind == 'WebP' else b'\x89PNG')
    expected = image.convert('RGB').transpose(PIL.Image.ROTATE_270) if orientation == 6 else image.convert('RGB')
    assert np.abs(pixels_of(accepted.encoded) - np.asarray(expected)).mean() <= tolerance


def test_exif_data_that_cannot_be_read_is_ignored(intake: Intake) -> None:
    # Pillow's error for such a block is a SyntaxError.
    accepted = intake.accept(saved(SMALL, 'WEBP', exif=b'Exif\0\0garbage'))
    assert accepted.notes == ('converted from WebP',)


GREY = SMALL.convert('L')


@pytest.mark.parametrize(
    ('encoded', 'message'),
    [
        (saved(SMALL, 'TIFF', save_all=True, append_images=[SMALL]), 'has several pages or frames; files of one'),
        (saved(SMALL, 'TIFF', tiffinfo={254: 1}), 'is a raw file of a camera, of which only a preview can be read'),
        (saved(SMALL, 'TIFF', tiffinfo={50706: b'\1\4\0\0'}), 'is a raw file of a camera'),
        *((saved(GREY.convert(mode), 'TIFF'), 'has 32 bits per channel') for mode in ('I', 'F')),
        *((saved(SMALL, kind)[:500], '(is damaged|or its beginning is damaged)') for kind in ('TIFF', 'WEBP', 'BMP')),
        (saved(SMALL, 'WEBP', save_all=True, append_images=[SMALL.rotate(90)]), 'has several pages or frames'),
        (saved(SMALL, 'PPM'), 'is not a JPEG, PNG, GIF, WebP, BMP or TIFF image'),
        (
            saved(PIL.Image.new('1', (10_001, 10_000)), 'BMP')[:99],
            'has 10,001 x 10,000 pixels; at most 100,000,000 are',
        ),
    ],
)
def test_files_of_no_single_picture_of_8_or_16_bits_are_refused(encoded: bytes, message: str, intake: Intake) -> None:
    with pytest.raises(UnreadableError, match=message):
        intake.accept(encoded)


def test_16_bits_are_noted(intake: Intake) -> None:
    values = np.linspace(0, 65_535, 60 * 90).astype(np.uint16).reshape(60, 90, 1)
    with tf.Graph().as_default(), tf.Session() as session:
        png = session.run(tf.image.encode_png(tf.constant(values)))
    for encoded, notes in (
        (png, (REDUCED,)),
        *(
            (saved(PIL.Image.fromarray(values[..., 0].astype(f'{order}u2')), 'TIFF'), (CONVERTED, REDUCED))
            for order in '<>'
        ),
    ):
        accepted = intake.accept(encoded)
        assert accepted.notes == notes and (accepted.encoded == encoded) == (encoded is png)
        np.testing.assert_array_equal(pixels_of(accepted.encoded), np.broadcast_to(values >> 8, [60, 90, 3]))


def test_formats_of_pillow_without_pillow_name_the_package(intake: Intake, monkeypatch: Any) -> None:
    encoded = saved(SMALL, 'WEBP')
    monkeypatch.setitem(sys.modules, 'PIL.Image', None)
    with pytest.raises(UnreadableError, match=r"TIFF need Pillow: pip install 'inception-v3-tpu\[images\]'"):
        intake.accept(encoded)


def test_damage_inside_the_scan_of_most_jpegs_is_noticed(intake: Intake, capfd: Any) -> None:
    source, encoded = random.Random(1), saved(CAT, 'JPEG', quality=90)
    begin = encoded.index(b'\xff\xda') + 14
    refused = 0
    for _ in range(60):
        at = source.randrange(begin, len(encoded) - 40)
        spoilt = encoded[:at] + bytes(source.randrange(256) for _ in range(16)) + encoded[at + 16 :]
        try:
            intake.accept(spoilt)
        except UnreadableError as error:
            assert 'damaged JPEG image (' in str(error)
            refused += 1
    # 4 of 60 stop the decoder; the others are libjpeg's warnings. Codes of the rest fall into step again.
    assert refused >= 35
    assert capfd.readouterr().err == ''
