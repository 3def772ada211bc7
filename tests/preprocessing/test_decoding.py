"""Tests of decoding with files that Pillow writes."""

import io
import random
import struct
import subprocess
import sys
import zlib
from typing import Any, Callable, Dict, List

import numpy as np
import PIL.Image
import pytest

from compat import tf
from preprocessing import decoding
from preprocessing.decoding import MAX_PIXELS, Crop, decode_crop, decode_image, image_shape
from tests.support import images
from tests.support.graphs import evaluate, fed
from tests.support.images import saved, with_bytes

CAT = PIL.Image.fromarray(images.CAT)  # 300 x 451
SMALL = CAT.crop((100, 60, 201, 137))


def decode(encoded: bytes) -> np.ndarray:
    return fed(decode_image)(encoded)


def test_decode_image__has_a_static_type_and_shape() -> None:
    image = decode_image(tf.constant(b''))
    assert (image.dtype, image.shape.as_list()) == (tf.uint8, [None, None, 3])


def with_alpha(image: PIL.Image.Image) -> PIL.Image.Image:
    """Adds an alpha channel of 0, 1, 2, … along each row: the left edge is transparent."""
    alpha = np.broadcast_to(np.arange(image.width, dtype=np.uint8), [image.height, image.width])
    transparent = image.copy()
    transparent.putalpha(PIL.Image.fromarray(alpha))
    return transparent


def test_decode_image__decodes_a_jpeg() -> None:
    encoded = saved(CAT, 'JPEG', quality=95)
    decoded = decode(encoded).astype(int)
    # TensorFlow uses the fast cosine transform, Pillow the accurate one: they differ by a grey level or two.
    by_pillow = np.asarray(PIL.Image.open(io.BytesIO(encoded)), int)
    assert np.abs(decoded - by_pillow).mean() < 1.5
    assert np.abs(decoded - by_pillow).max() <= 12
    assert np.abs(decoded - np.asarray(CAT, int)).mean() < 3


@pytest.mark.parametrize('mode', ['L', 'CMYK'])
def test_decode_image__decodes_grey_and_cmyk_jpegs(mode: str) -> None:
    image = CAT.convert(mode)
    decoded = decode(saved(image, 'JPEG', quality=95)).astype(int)
    assert np.abs(decoded - np.asarray(image.convert('RGB'), int)).mean() < 3
    if mode == 'L':
        np.testing.assert_array_equal(decoded, decoded[:, :, :1].repeat(3, axis=2))


@pytest.mark.parametrize(
    ('kind', 'image'),
    [
        *(('GIF', SMALL.quantize(256)), ('PNG', SMALL), ('PNG', with_alpha(SMALL)), ('PNG', SMALL.quantize(256))),
        *(('PNG', SMALL.convert('L')), ('PNG', with_alpha(SMALL.convert('L'))), ('PNG', SMALL.convert('1'))),
    ],
    ids=['GIF of one frame', 'rgb', 'rgba', 'palette', 'grey', 'grey with alpha', 'black and white'],
)
def test_decode_image__decodes_a_png_or_gif_exactly(kind: str, image: PIL.Image.Image) -> None:
    # Pillow's conversion also drops transparency instead of blending.
    np.testing.assert_array_equal(decode(saved(image, kind)), np.asarray(image.convert('RGB')))


NO_IMAGES = {
    'empty': b'',
    'JPEG signature only': b'\xff\xd8\xff',
    'GIF signature only': b'GIF',
    'random': np.random.RandomState(0).bytes(5000),
    'JPEG without first byte': saved(SMALL, 'JPEG')[1:],
    'BMP': saved(SMALL, 'BMP'),
    'WebP': saved(SMALL, 'WEBP'),
    'animation': saved(SMALL.convert('P'), 'GIF', save_all=True, append_images=[SMALL.rotate(90).convert('P')]),
}


@pytest.mark.parametrize('kind', NO_IMAGES)
def test_decode_image__refuses_files_that_are_not_images(kind: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        decode(NO_IMAGES[kind])
    assert 'more than' not in raised.value.message, 'a size in a file that has none'


GREY = CAT.convert('L')
# A file of each kind that is found in data sets.
KINDS: Dict[str, Callable[[], bytes]] = {
    'JPEG': lambda: saved(CAT, 'JPEG', quality=92),
    'JPEG 4:4:4': lambda: saved(CAT, 'JPEG', subsampling=0),
    'progressive JPEG': lambda: saved(CAT, 'JPEG', progressive=True),
    'JPEG with restart markers': lambda: saved(CAT, 'JPEG', restart_marker_blocks=7),
    'grey JPEG': lambda: saved(GREY, 'JPEG'),
    'CMYK JPEG': lambda: saved(CAT.convert('CMYK'), 'JPEG'),
    'PNG': lambda: saved(CAT, 'PNG'),
    'PNG with transparency': lambda: saved(with_alpha(CAT), 'PNG'),
    '16-bit PNG': lambda: saved(PIL.Image.fromarray(np.asarray(GREY, np.uint16) * 257), 'PNG'),
    'GIF': lambda: saved(CAT.convert('P'), 'GIF'),
}


def crop(encoded: bytes, box: List[int]) -> np.ndarray:
    return fed(crop_of, (tf.string, ()), (tf.int32, (4,)))(encoded, box)


def crop_of(encoded: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    pixels = decode_crop(encoded, image_shape(encoded), Crop(*tf.unstack(box)))
    assert (pixels.dtype, pixels.shape.as_list()) == (tf.uint8, [None, None, 3])
    return pixels


@pytest.mark.parametrize('kind', KINDS)
def test_decode_crop__equals_a_crop_of_the_whole_image(kind: str) -> None:
    encoded, generator = KINDS[kind](), random.Random(kind)
    whole = decode(encoded)
    height, width = whole.shape[:2]
    parts = [(0, 0, height, width), (0, 0, 1, 1), (height - 1, width - 1, 1, 1)]
    for _ in range(10):
        size = generator.randint(1, height), generator.randint(1, width)
        parts.append((generator.randint(0, height - size[0]), generator.randint(0, width - size[1]), *size))
    assert fed(image_shape)(encoded)[:2].tolist() == [height, width]
    for top, left, rows, columns in parts:
        part = crop(encoded, [top, left, rows, columns])
        np.testing.assert_array_equal(part, whole[top : top + rows, left : left + columns])


def test_decoding__refuses_a_truncated_file() -> None:
    """Truncated files are refused even for a crop of the first row, which is complete."""
    for kind in ('JPEG', 'progressive JPEG', 'PNG', 'GIF'):
        encoded = KINDS[kind]()
        for end in (0, len(encoded) // 10, int(0.99 * len(encoded)), -2 if kind != 'GIF' else 0):
            with pytest.raises(tf.errors.InvalidArgumentError):
                decode(encoded[:end])
            with pytest.raises(tf.errors.InvalidArgumentError):
                crop(encoded[:end], [0, 0, 1, 100])


# For each file, prints the mean of a crop that a data set decodes, or the message of the error; and the memory that
# decoding took.
MEASURE = """
import sys
from tools.benchmarks.measurement import peak_bytes
from compat import tf
from preprocessing.decoding import Crop, decode_crop, image_shape
def part(encoded):
    return decode_crop(encoded, image_shape(encoded), Crop(*tf.unstack(tf.constant([4000, 6000, 900, 1200]))))
with tf.Session() as session:
    session.run(tf.zeros([]))
    for path in sys.argv[1:]:
        dataset = tf.data.Dataset.from_tensors(tf.io.read_file(path)).map(part)
        taken = tf.data.make_one_shot_iterator(dataset).get_next()
        before = peak_bytes()
        try:
            print(session.run(taken).mean())
        except tf.errors.InvalidArgumentError as error:
            print(' '.join(error.message.split()))
        print(peak_bytes() - before)
"""


@pytest.mark.both
@pytest.mark.program
def test_decode_crop__needs_no_memory_for_the_rest_of_a_huge_image(tmp_path: Any) -> None:
    # 48 kB that are 1.2 GB decoded: refused before anything is allocated.
    side = 20_000
    header, pixels = struct.pack('>IIBBBBB', side, side, 1, 0, 0, 0, 0), bytes((1 + side // 8) * side)
    content = b'\x89PNG\r\n\x1a\n'
    for name, chunk in ((b'IHDR', header), (b'IDAT', zlib.compress(pixels, 9)), (b'IEND', b'')):
        content += struct.pack('>I', len(chunk)) + name + chunk + struct.pack('>I', zlib.crc32(name + chunk))
    (tmp_path / 'huge.png').write_bytes(content)
    # 297 MB decoded, of which the crop is a hundredth.
    PIL.Image.new('RGB', (11000, 9000), (100, 100, 100)).save(str(tmp_path / 'huge.jpg'))
    command = [sys.executable, '-c', MEASURE, f'{tmp_path}/huge.png', f'{tmp_path}/huge.jpg']
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    of_png, taken_by_png, of_jpeg, taken_by_jpeg = done.stdout.splitlines()
    assert max(int(taken_by_png), int(taken_by_jpeg)) < 100_000_000
    assert 'an image of more than' in of_png and abs(float(of_jpeg) - 100) < 2


@pytest.mark.parametrize('read', [decode_image, image_shape])
@pytest.mark.parametrize('size', [(10_000, 10_001), (65_500, 65_500), (0, 5)])
def test_decoding__refuses_too_many_pixels_in_the_header_before_allocating_them(read: Any, size: Any) -> None:
    assert MAX_PIXELS == 100_000_000
    jpeg, png = bytearray(saved(CAT, 'JPEG')), bytearray(saved(CAT, 'PNG'))
    frame = jpeg.index(b'\xff\xc0') + 5
    jpeg[frame : frame + 4] = struct.pack('>HH', *size)
    png[16:24] = struct.pack('>II', *size)
    for encoded in (jpeg, png):
        with pytest.raises(tf.errors.InvalidArgumentError, match='an image of' if size[0] else ''):
            fed(read)(bytes(encoded))


@pytest.mark.parametrize(
    ('progressive', 'before', 'found'), [(False, 0, 1), (True, 0, 1), (True, 15_000, 1), (True, 16_384, 0)]
)
def test_jpeg_header_pixels__are_found_in_the_first_16_kib(progressive: bool, before: int, found: int) -> None:
    jpeg = saved(CAT, 'JPEG', progressive=progressive)
    comment = b'\xff\xfe' + struct.pack('>H', 2 + before) + bytes(before)
    # Bytes that look like a header of 12 bits, or of a wrong length, do not count.
    others = b'\xff\xc0\0\x11\x0c\xff\xff\xff\xff\3' + b'\xff\xc0\0\x12\x08\xff\xff\xff\xff\3'
    pixels = fed(decoding._jpeg_header_pixels)(jpeg[:2] + comment + others + jpeg[2:])
    assert max(pixels, 0) == 300 * 451 * found


@pytest.mark.parametrize('read', [decode_image, image_shape])
def test_image_shape__checks_the_size_of_a_jpeg_before_tensorflow_reads_it(read: Any, monkeypatch: Any) -> None:
    # For a progressive file, TensorFlow would first allocate the memory.
    monkeypatch.setattr(decoding, '_jpeg_header_pixels', lambda encoded: tf.constant(MAX_PIXELS + 1.0, tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError, match='an image of more than 100000000 pixels'):
        evaluate(read(tf.constant(saved(CAT, 'JPEG', progressive=True))))


@pytest.mark.parametrize(
    ('offset', 'marker'), [(2, b'\xff\xe0'), (2, b'\xff\xfe'), (20, b'\xff\xfe'), (89, b'\xff\xfe')]
)
def test_image_shape__is_not_that_of_a_frame_header_inside_another_segment(offset: int, marker: bytes) -> None:
    jpeg = saved(CAT, 'JPEG')
    assert jpeg.index(b'\xff\xc0') == 158, 'a usual file'
    # Except for its marker and length, the segment looks like a usual file's first bytes, with another size.
    content = jpeg[offset + 4 : 163] + struct.pack('>HH', 9, 9) + jpeg[167:180]
    segment = marker + struct.pack('>H', 2 + len(content)) + content
    assert fed(image_shape)(jpeg[:offset] + segment + jpeg[offset:]).tolist() == [300, 451, 3]


def test_image_shape__reads_at_its_place_only_if_all_bytes_are_usual(monkeypatch: Any) -> None:
    monkeypatch.setattr(decoding, '_shape_of_other', lambda encoded: tf.constant([1, 2, 3]))
    encoded = tf.placeholder(tf.string, [])
    shape = image_shape(encoded)
    with tf.Session() as session:
        assert session.run(shape, {encoded: KINDS['JPEG']()}).tolist() == [300, 451, 3]
        for offset in decoding._USUAL_BYTES:
            jpeg = bytearray(saved(CAT, 'JPEG'))
            jpeg[offset] ^= 1
            assert session.run(shape, {encoded: bytes(jpeg)}).tolist() == [1, 2, 3], offset


def test_decoding__refuses_too_many_pixels_in_a_gif_header_before_allocating_them() -> None:
    gif = bytearray(saved(CAT, 'GIF'))
    width, height = gif[6:8], gif[8:10]
    gif[6:10] = struct.pack('<HH', 25_001, 4_000)
    assert width + height in gif[10:], 'the size of the frame'
    frame = gif.index(width + height, 10)
    gif[frame : frame + 4] = gif[6:10]
    for read in (decode_image, image_shape):
        with pytest.raises(tf.errors.InvalidArgumentError, match='an image of more than'):
            fed(read)(bytes(gif))
    # A frame larger than the header is refused too, but only when it is decoded.
    gif[6:10] = width + height
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(bytes(gif))


def test_image_shape__may_have_a_hundred_million_pixels() -> None:
    head = b'\x89PNG\r\n\x1a\n' + struct.pack('>I4s', 13, b'IHDR')
    shape = fed(image_shape)
    assert shape(head + struct.pack('>II', 12_500, 8_000)).tolist() == [8_000, 12_500, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match='more than 100000000 pixels'):
        shape(head + struct.pack('>II', 3, 33_333_334))


GROUP = tf.string, (None,)


def test_image_shape__of_a_group_is_that_of_each_image() -> None:
    sizes = ((200, 100), (7, 9), (300, 451), (100, 120), (33, 44), (2, 3))
    kinds = ('JPEG', 'PNG', 'GIF', 'JPEG', 'JPEG', 'JPEG')
    files = [saved(CAT.crop((0, 0, width, height)), kind) for (height, width), kind in zip(sizes, kinds)]
    files[3] = saved(CAT.crop((0, 0, 120, 100)).convert('L'), 'JPEG')
    is_usual = [decoding._USUAL_BYTES.items() <= {*enumerate(file)} for file in files]
    assert is_usual == [True, False, False, False, True, True]
    expected = [[height, width, 3] for height, width in sizes]
    expected[3][2] = 1
    for chosen in (slice(None), slice(1, 4), slice(4, 6), slice(0, 1)):
        assert fed(image_shape, GROUP)(files[chosen]).tolist() == expected[chosen]


@pytest.mark.parametrize(
    ('bad', 'message'),
    [
        *((b'', ''), (b'not an image', '')),
        # Python would crash on a message that contains the bytes of a PNG without a size.
        *((b'\x89PNG', ''), (saved(CAT, 'PNG')[:20], '')),
        # TensorFlow reads these sides as negative numbers, whose product is positive.
        (with_bytes(saved(CAT, 'PNG'), 16, b'\xff' * 8), 'an image of no pixels'),
        (with_bytes(saved(CAT, 'PNG'), 16, struct.pack('>ii', -20_000, -20_000)), 'an image of no pixels'),
        (with_bytes(saved(CAT, 'JPEG'), 163, struct.pack('>HH', 10_001, 10_000)), 'an image of more than'),
    ],
)
def test_image_shape__refuses_a_bad_file_alone_and_in_a_group(bad: bytes, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fed(image_shape)(bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fed(image_shape, GROUP)([saved(CAT, 'JPEG'), bad])
