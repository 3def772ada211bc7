"""Decodes images as viewers show them: turned by their EXIF orientation, and laid on white where they are transparent.

It takes TensorFlow's operations alone, so that an exported network needs no Python for the files of its users. EXIF:
CIPA DC-008, 4.6. Its place is APP1 in JPEG (4.7.2); that of other formats is not read.
"""

from typing import Tuple

import numpy as np

from compat import tf
from preprocessing.decoding import image_shape, is_png
from preprocessing.steps import Preprocessing

# The orientation of pixels that are stored as viewers show them.
UPRIGHT = 1
# By orientation, from 0: whether the rows are stored in reverse order, and the columns; from 5 on, those of the
# transposed image.
_REVERSED = [[value in (3, 4, 7, 8), value in (2, 3, 6, 7)] for value in range(9)]
_TRANSPOSED = 5
_OPAQUE = 255

# The tag, the type SHORT, the count 1 and the high byte of the value of an orientation, in big-endian order (4.6.2).
_ENTRY = [*b'\x01\x12\x00\x03\x00\x00\x00\x01\x00']
_ENTRY_BYTES = 12
# The places of the tag, type, count and value of an entry, by their bytes from high to low.
_BIG_ENDIAN, _LITTLE_ENDIAN = [*range(10)], [1, 0, 3, 2, 7, 6, 5, 4, 9, 8]

# Markers of JPEG (ITU-T T.81, table B.1): those without a length, and those after which no EXIF data comes.
_IS_STANDALONE = [marker == 0x01 or marker in range(0xD0, 0xD9) for marker in range(256)]
_IS_LAST = [marker in (0xD9, 0xDA) for marker in range(256)]
_MARKER, _APP1, _EXIF = 0xFF, 0xE1, [*b'Exif\0']
# Segments begin after the first marker. One has its EXIF data after its marker, the length, and the name and a zero.
_BEGIN, _CONTENT = 2, 10
_HEADER_BYTES = 9
# The segments that are searched: a file of a million empty ones would occupy a server for a minute.
_SEARCHED = 10_000


def exif_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG file, int32 scalar from 1 to 8; 1 if there is none to be read."""
    block = tf.cond(tf.image.is_jpeg(encoded), lambda: _exif(encoded), lambda: tf.constant(b''))
    is_little = tf.equal(tf.strings.substr(block, 0, 4), b'II*\0')
    is_known = tf.logical_or(is_little, tf.equal(tf.strings.substr(block, 0, 4), b'MM\0*'))
    order = tf.where(is_little, _LITTLE_ENDIAN, _BIG_ENDIAN)

    def number(position: tf.Tensor, size: int) -> tf.Tensor:
        content = _bytes(block, position, size)
        return _number(tf.where(is_little, content[::-1], content))

    length = _length(block)
    offset = number(tf.constant(4, tf.int64), 4)
    # Entries that are cut off, or lie outside the EXIF data, are not read.
    present = (length - offset - 2 - len(_BIG_ENDIAN)) // _ENTRY_BYTES + 1
    entries = tf.maximum(tf.minimum(number(offset, 2), present), 0)
    content = _bytes(block, offset + 2, tf.cast(tf.maximum(entries, 1) * _ENTRY_BYTES, tf.int32))
    rows = tf.gather(tf.reshape(content, [-1, _ENTRY_BYTES])[:entries], order, axis=1)
    is_orientation = tf.reduce_all(tf.equal(rows[:, :2], _ENTRY[:2]), 1)
    first = tf.boolean_mask(rows, is_orientation)[:1]
    is_usable = tf.reduce_all(tf.equal(first[:, :-1], _ENTRY), 1)
    values = tf.boolean_mask(first[:, -1], tf.logical_and(is_usable, is_known))
    value = tf.cast(tf.reduce_sum(values), tf.int32)
    return tf.where(tf.logical_and(value >= UPRIGHT, value < len(_REVERSED)), value, UPRIGHT)


def _exif(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF data of a JPEG file, a string scalar; empty if there is none (T.81, B.1.1.4)."""
    length = _length(encoded)

    def step(position: tf.Tensor, *unused: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        """Reads a segment, or one of the bytes that may fill the space before it."""
        header = _bytes(encoded, position, _HEADER_BYTES)
        marker, size = header[1], _number(header[2:4])
        has_exif = tf.logical_and(tf.equal(marker, _APP1), tf.reduce_all(tf.equal(header[4:], _EXIF)))
        is_exif = tf.reduce_all([tf.equal(header[0], _MARKER), has_exif, size >= 2 + len(_EXIF)])
        is_end = tf.reduce_any([is_exif, tf.not_equal(header[0], _MARKER), tf.gather(_IS_LAST, marker)])
        is_alone = tf.gather(_IS_STANDALONE, marker)
        step = tf.where(tf.equal(marker, _MARKER), 1, tf.where(is_alone, 2, tf.cast(size, tf.int32) + 2))
        content = tf.where(is_exif, tf.maximum(size - (_CONTENT - 2), 0), tf.zeros_like(size))
        following = tf.where(is_end, length, position + tf.cast(step, tf.int64))
        return following, tf.minimum(position + _CONTENT, length), content

    start = tf.constant(_BEGIN, tf.int64)
    _, found, size = tf.while_loop(
        lambda position, *unused: position < length,
        step,
        (start, tf.zeros_like(start), tf.zeros_like(start)),
        parallel_iterations=1,
        back_prop=False,
        maximum_iterations=_SEARCHED,
    )
    return tf.strings.substr(encoded, found, size)


def _length(content: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(content), tf.int64)


def _bytes(content: tf.Tensor, position: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the bytes at a position as int32 [size]; zeros beyond the end."""
    # substr fails beyond the end.
    part = tf.strings.substr(content, tf.minimum(position, _length(content)), tf.cast(size, tf.int64))
    padded = tf.raw_ops.DecodePaddedRaw(input_bytes=part, fixed_length=size, out_type=tf.uint8)
    return tf.cast(padded, tf.int32)


def _number(content: tf.Tensor) -> tf.Tensor:
    places = 256 ** np.arange(int(content.shape[0]), dtype=np.int64)[::-1]
    return tf.reduce_sum(tf.cast(content, tf.int64) * places)


def decode_as_viewed(encoded: tf.Tensor, shape: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG or one-frame GIF image to RGB as viewers show it: uint8 [height, width, 3].

    The shape, of the pixels as they are stored, is from `image_shape`, which also checks their number; the orientation
    from `exif_orientation`. Fails at run time as `decode_image` does.
    """
    with tf.control_dependencies([shape]):
        checked = tf.identity(encoded)
    pixels = tf.cond(
        is_png(encoded),
        lambda: _on_white(tf.image.decode_png(checked, channels=4)),
        lambda: tf.image.decode_jpeg(checked, channels=3),
    )
    turned = tf.cond(orientation >= _TRANSPOSED, lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels)
    turned = tf.reverse(turned, tf.boolean_mask([0, 1], tf.gather(_REVERSED, orientation)))
    turned.set_shape([None, None, 3])
    return turned


def _on_white(pixels: tf.Tensor) -> tf.Tensor:
    colours, alpha = pixels[..., :3], pixels[..., 3:]

    def laid() -> tf.Tensor:
        absent = (_OPAQUE - tf.cast(colours, tf.int32)) * tf.cast(alpha, tf.int32)
        return tf.cast(_OPAQUE - (absent + _OPAQUE // 2) // _OPAQUE, tf.uint8)

    # Opaque pixels would not change, but computing in 32 bits takes time and memory.
    is_opaque = tf.reduce_all(tf.equal(alpha, _OPAQUE))
    return tf.cond(is_opaque, lambda: colours, laid)


def resize_as_viewed(encoded: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Decodes, crops and resizes an encoded image as `predict` and exports do: float32 [height, width, 3] in [0, 255].

    The image is turned by its EXIF orientation, and laid on white where it is transparent. The others are prepared as
    by `Preprocessing.resize_encoded`, to the bit.
    """
    shape, orientation = image_shape(encoded), exif_orientation(encoded)
    return tf.cond(
        tf.logical_or(is_png(encoded), orientation > UPRIGHT),
        lambda: preprocessing.resize_decoded(decode_as_viewed(encoded, shape, orientation)),
        lambda: preprocessing.resize_encoded(encoded, shape),
    )
