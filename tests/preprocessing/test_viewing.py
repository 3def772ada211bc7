"""Tests of images as viewers show them: orientations and transparency, against Pillow, and damaged EXIF data."""

import random
from typing import Any, Callable, Iterator, List

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from compat import tf
from inception_v3.config import Config
from preprocessing import viewing
from preprocessing.decoding import MAX_PIXELS, image_shape
from preprocessing.preprocessings import preprocessing_for
from preprocessing.viewing import decode_as_viewed, exif_orientation, resize_as_viewed
from tests.support.graphs import evaluate
from tests.support.images import CAT, ORIENTATION_TAG, saved, with_segment
from tools.image_header import orientation

SMALL = PIL.Image.fromarray(CAT).resize((30, 20))


def with_gradient(image: Any) -> Any:
    """The image in RGBA, or LA if it is grey, with an alpha channel that hides its top."""
    transparent = image.convert('LA' if image.mode in ('L', 'LA') else 'RGBA')
    transparent.putalpha(PIL.Image.linear_gradient('L').resize(image.size))
    return transparent


JPEG = saved(SMALL, 'JPEG')


def in_jpeg(block: bytes, name: bytes = b'Exif\0\0', before: bytes = b'') -> bytes:
    """A JPEG file with an EXIF block, after other bytes."""
    return JPEG[:2] + before + with_segment(JPEG, 0xE1, name + block)[2:]


def big(value: bytes = b'\0\6\0\0', kind: bytes = b'\0\3', count: bytes = b'\0\0\0\1', tag: bytes = b'\1\x12') -> bytes:
    return b'MM\0*\0\0\0\x08\0\1' + tag + kind + count + value


def changed(entry: bytes, place: int) -> bytes:
    """The entry with the byte at a place set to 1."""
    return entry[:place] + b'\1' + entry[place + 1 :]


LITTLE = b'II*\0\x08\0\0\0\2\0' + b'\x0f\1\2\0\1\0\0\0\0\0\0\0' + b'\x12\1\3\0\1\0\0\0\x08\0\0\0'
JFIF = b'\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0'
XMP = b'\xff\xe1\0\x0dhttp://ns.a'
UNUSUAL = [
    (in_jpeg(big()), 6),
    (in_jpeg(LITTLE), 8),
    # After a JFIF segment, another APP1, fill bytes, an even and an odd number of them, and a marker without a length.
    (in_jpeg(big(), before=JFIF), 6),
    (in_jpeg(LITTLE, before=JFIF + XMP + b'\xff\xff\xff\xfe\0\4ab\xff\xff' + b'\xff\1'), 8),
    (in_jpeg(big(), before=b'\xff\xff\xfe\0\4ab'), 6),
    # The directory is at the end of the block.
    (in_jpeg(b'MM\0*\0\0\0\x0cabcd' + big()[8:]), 6),
    # Values, types and counts that are not allowed.
    (in_jpeg(big(b'\0\0\0\0')), 1),
    (in_jpeg(big(b'\0\x09\0\0')), 1),
    (in_jpeg(big(b'\1\6\0\0')), 1),
    (in_jpeg(big(kind=b'\0\4')), 1),
    (in_jpeg(big(count=b'\xff\xff\xff\xff')), 1),
    (in_jpeg(big(tag=b'\1\x13')), 1),
    # The same in little-endian entries: high bytes of type, count and value are set, and the byte after the value.
    *[(in_jpeg(LITTLE[:22] + changed(LITTLE[22:], place)), 1) for place in (3, 5, 6, 7, 9)],
    (in_jpeg(LITTLE[:22] + changed(LITTLE[22:], 10)), 8),
    # Offsets and numbers of entries beyond the end, and blocks that are cut.
    (in_jpeg(b'MM\0*\xff\xff\xff\xff'), 1),
    (in_jpeg(b'MM\0*\0\0\0\x08\xff\xff'), 1),
    (in_jpeg(b'MM\0*\0\0\0\x08\xff\xff' + big()[10:]), 6),
    (in_jpeg(LITTLE[:-2]), 8),
    (in_jpeg(LITTLE[:-3]), 1),
    (in_jpeg(b'XX\0*' + big()[4:]), 1),
    (in_jpeg(b''), 1),
    (in_jpeg(big(), name=b'Exit\0\0'), 1),
    # EXIF data after the end marker, after the pixels, in a comment, and in a file of another kind.
    (in_jpeg(big(), before=b'\xff\xd9'), 1),
    (JPEG + in_jpeg(big())[2:], 1),
    (in_jpeg(b'', b'', b'\xff\xfe\0\x24' + b'Exif\0\0' + big() + bytes(6)), 1),
    (saved(SMALL, 'GIF') + in_jpeg(big()), 1),
    (b'', 1),
    (b'\xff\xd8\xff', 1),
    (b'\x89PNG', 1),
    # PNG files have their orientation elsewhere.
    (saved(SMALL, 'PNG', 6), 1),
    # After each marker without a length: the restarts, another beginning, and the temporary marker.
    (in_jpeg(big(), before=b''.join(b'\xff' + bytes([marker]) for marker in (1, *range(0xD0, 0xD9)))), 6),
]


def orientations(files: List[bytes]) -> List[int]:
    """The orientations by the graph, which takes many files at a time like a served graph."""
    return evaluate(tf.map_fn(exif_orientation, tf.constant(files), tf.int32, parallel_iterations=16)).tolist()


def test_exif_orientation__is_found_in_usual_and_unusual_files() -> None:
    usual = [(saved(SMALL, 'JPEG', value), value) for value in range(1, 9)]
    files, expected = zip(*usual, *UNUSUAL)
    # The graph, and Python.
    assert orientations([*files]) == [orientation(file) for file in files] == [*expected]


def test_exif_orientation__is_searched_in_ten_thousand_segments_at_most(monkeypatch: Any) -> None:
    assert viewing._SEARCHED == 10_000
    monkeypatch.setattr(viewing, '_SEARCHED', 100)
    # A fill byte counts as a segment.
    assert orientations([in_jpeg(big(), before=b'\xff' * number) for number in (99, 100)]) == [6, 1]
    assert orientation(b'\xff\xd8' + b'\xff' * 100_000) == 1


def test_exif_orientation__of_damaged_files_is_a_value_and_no_error() -> None:
    source = random.Random(1)
    whole = saved(SMALL, 'JPEG', 6)
    cut = [whole[:end] for end in range(300)]
    damaged = []
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(3):
            content[source.randrange(120)] = source.choice([source.randrange(256), 0, 0xFF])
        damaged.append(bytes(content))
    # Python takes microseconds for a file, and the graph a millisecond.
    for found in (map(orientation, [*cut, *damaged]), orientations([*cut[:120:5], *damaged[:70]])):
        values = {*found}
        assert values <= {*range(1, 9)} and {1, 6} <= values


@pytest.fixture(scope='module')
def viewed() -> Iterator[Callable[[bytes], np.ndarray]]:
    with tf.Graph().as_default(), tf.Session() as session:
        file = tf.placeholder(tf.string, [])
        pixels = decode_as_viewed(file, image_shape(file), exif_orientation(file))
        yield lambda encoded: session.run(pixels, {file: encoded})


def test_decode_as_viewed__turns_as_pillow_does(viewed: Callable[[bytes], np.ndarray]) -> None:
    image = PIL.Image.fromarray(evaluate(tf.image.decode_image(JPEG)))
    for value in range(1, 9):
        image.getexif()[ORIENTATION_TAG] = value
        expected = np.asarray(PIL.ImageOps.exif_transpose(image))
        np.testing.assert_array_equal(viewed(saved(SMALL, 'JPEG', value)), expected)


@pytest.mark.parametrize('mode', ['RGBA', 'LA', 'P', 'L', 'RGB'])
def test_decode_as_viewed__lays_transparent_pixels_on_white(mode: str, viewed: Callable[[bytes], np.ndarray]) -> None:
    image = with_gradient(SMALL.convert(mode))
    # In other modes, one colour is transparent.
    transparent = {'P': 3, 'L': 80, 'RGB': SMALL.getpixel((3, 4))}.get(mode)
    if transparent is not None:
        image = SMALL.quantize(9) if mode == 'P' else SMALL.convert(mode)
        image.info['transparency'] = transparent
    colours = np.asarray(image.convert('RGBA')).astype(float)
    alpha = colours[..., 3:] / 255
    assert alpha.min() < 1
    options = {} if transparent is None else {'transparency': transparent}
    # No value lies half-way between two whole numbers.
    expected = np.rint(colours[..., :3] * alpha + 255 * (1 - alpha))
    np.testing.assert_array_equal(viewed(saved(image, 'PNG', **options)), expected)


def resized(files: List[bytes], *resizings: Any, **flags: Any) -> List[Any]:
    """The results of functions for each file, or the messages of their errors."""
    preprocessing = preprocessing_for(Config(height=75, width=90, use_tpu=False, auxiliary_head=False, **flags))
    found: List[Any] = []
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = tf.placeholder(tf.string, [])
        images = [resize(encoded, preprocessing) for resize in resizings]
        for file in files:
            try:
                found.append(session.run(images, {encoded: file}))
            except tf.errors.InvalidArgumentError as error:
                found.append(error.message)
    return found


def test_resize_as_viewed__of_usual_images_equals_resize_encoded() -> None:
    files = [saved(PIL.Image.fromarray(CAT), kind) for kind in ('JPEG', 'PNG', 'GIF')]
    for images in resized(files, resize_as_viewed, lambda encoded, kind: kind.resize_encoded(encoded)):
        np.testing.assert_array_equal(*images)


def test_resize_as_viewed__refuses_damaged_and_huge_images() -> None:
    jpeg, png = saved(SMALL, 'JPEG', 6), saved(SMALL, 'PNG', 6)
    size = jpeg.index(b'\xff\xc0') + 5
    huge = [
        jpeg[:size] + b'\xff' * 4 + jpeg[size + 4 :],
        png[:16] + (1 << 14).to_bytes(4, 'big') * 2 + png[24:],
    ]
    damaged = [jpeg[:-200], png[:-200], b'', b'text']
    messages = resized([*huge, *damaged], resize_as_viewed)
    assert all(isinstance(message, str) for message in messages)
    assert all(f'more than {MAX_PIXELS} pixels' in message for message in messages[: len(huge)])
