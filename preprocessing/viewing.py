"""Decodes images as viewers show them: turned by their EXIF orientation, and laid on white where they are transparent.

All operations are TensorFlow's, so that an exported network reads users' files without Python. EXIF is defined by CIPA
DC-008, 4.6; its place in JPEG is APP1 (4.7.2). EXIF data of other formats is not read.
"""

from typing import Any, Tuple

import numpy as np

from compat import tf
from preprocessing.decoding import image_shape, is_png
from preprocessing.steps import Preprocessing

# The orientation of pixels that are stored as viewers show them.
UPRIGHT = 1
# By orientation, from 0: whether rows, columns and colours are stored in reverse order. From 5 on, rows and columns are
# those of the transposed image.
_REVERSED = [[value in (3, 4, 7, 8), value in (2, 3, 6, 7), False] for value in range(9)]
_TRANSPOSED = 5
_OPAQUE = 255

# The tag, the type SHORT, the count 1 and the high byte of the value of an orientation, in big-endian order (4.6.2);
# and a place for its low byte.
_ENTRY = np.frombuffer(b'\x01\x12\x00\x03\x00\x00\x00\x01\x00\x00', np.uint8)
_IS_BEHIND_TAG, _IS_VALUE = np.arange(len(_ENTRY)) >= 2, np.arange(len(_ENTRY)) == len(_ENTRY) - 1
_ENTRY_BYTES = 12
# The places of the tag, type, count and value of an entry, by their bytes from high to low.
_BIG_ENDIAN, _LITTLE_ENDIAN = [*range(10)], [1, 0, 3, 2, 7, 6, 5, 4, 9, 8]

# Bytes from a JPEG marker to the next one, besides the segment (ITU-T T.81, table B.1): 1 for a fill byte, 2 for a
# marker without a segment, 0 for others; -1 for markers after which no EXIF data comes.
_STANDALONE, _LAST = {0x01, *range(0xD0, 0xD9)}, {0xD9, 0xDA}
_STEPS = [2 * (marker in _STANDALONE) - (marker in _LAST) for marker in range(0xFF)] + [1]
_MARKER = 0xFF
# The marker APP1 and the name of its data, by their places in a segment; between them is its length.
_PLACES, _EXIF = [0, 1, 4, 5, 6, 7, 8], [*b'\xff\xe1Exif\0']
_LEAST_BYTES = 7  # The length of a segment with this name counts itself and the name.
# Segments begin after the first marker. EXIF data follows its segment's marker, length, name and a zero.
_BEGIN, _CONTENT = 2, 10
_HEADER_BYTES = 9
# The segments that are searched: a file of a million empty ones would occupy a server for a minute.
_SEARCHED = 10_000


def exif_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG file, int32 scalar from 1 to 8; 1 if there is none to be read."""
    block = tf.cond(tf.image.is_jpeg(encoded), lambda: _exif(encoded), lambda: tf.constant(b''))
    length, mark = _length(block), tf.strings.substr(block, 0, 4)
    is_little = tf.equal(mark, b'II*\0')

    def content(position: Any, size: Any) -> tf.Tensor:
        """Returns the bytes at a position, uint8 [size]; zeros beyond the end."""
        # substr fails beyond the end.
        part = tf.strings.substr(block, tf.minimum(position, length), tf.cast(size, tf.int64))
        return tf.raw_ops.DecodePaddedRaw(input_bytes=part, fixed_length=size, out_type=tf.uint8)

    def number(position: Any, size: int) -> tf.Tensor:
        places = 256 ** np.arange(size, dtype=np.int64)
        return tf.reduce_sum(tf.cast(content(position, size), tf.int64) * tf.where(is_little, places, places[::-1]))

    offset = number(np.int64(4), 4)
    # Entries that are cut off, or lie outside the EXIF data, are not read; an entry's last two bytes are of no use.
    entries = tf.cast(tf.minimum(number(offset, 2), (length - offset) // _ENTRY_BYTES), tf.int32)
    rows = tf.reshape(content(offset + 2, tf.maximum(entries, 1) * _ENTRY_BYTES), [-1, _ENTRY_BYTES])
    fields = tf.gather(rows, tf.where(is_little, _LITTLE_ENDIAN, _BIG_ENDIAN), axis=1)
    is_same = tf.equal(fields, _ENTRY)
    has_tag = tf.reduce_all(tf.logical_or(is_same, _IS_BEHIND_TAG), 1)
    # Of equal values, top_k returns the first.
    first = tf.math.top_k(tf.cast(has_tag, tf.int32), 1).indices
    is_orientation = tf.reduce_all(tf.logical_or(tf.gather(is_same, first), _IS_VALUE))
    value = tf.cast(tf.gather(fields, first)[0, -1], tf.int32)
    is_known = tf.logical_or(is_little, tf.equal(mark, b'MM\0*'))
    is_usable = [is_orientation, is_known, entries > 0, value >= UPRIGHT, value < len(_REVERSED)]
    return tf.where(tf.reduce_all(is_usable), value, UPRIGHT)


def _exif(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF data of a JPEG file, a string scalar; empty if there is none (T.81, B.1.1.4)."""
    length = _length(encoded)

    def step(position: tf.Tensor, *unused: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        """Reads a segment, or one of the bytes that may fill the space before it."""
        part = tf.strings.substr(encoded, position, np.int64(_HEADER_BYTES))
        padded = tf.raw_ops.DecodePaddedRaw(input_bytes=part, fixed_length=_HEADER_BYTES, out_type=tf.uint8)
        header = tf.cast(padded, tf.int32)
        start, marker, high, low, *_ = tf.unstack(header)
        size, known = high * 256 + low, tf.gather(_STEPS, marker)
        has_exif = tf.reduce_all(tf.equal(tf.gather(header, _PLACES), _EXIF))
        is_exif = tf.logical_and(has_exif, size >= _LEAST_BYTES)
        is_end = tf.reduce_any([is_exif, tf.not_equal(start, _MARKER), known < 0])
        following = position + tf.cast(tf.where(known > 0, known, size + 2), tf.int64)
        content = tf.cast(is_exif, tf.int32) * tf.maximum(size - (_CONTENT - 2), 0)
        return tf.where(is_end, length, following), position, content

    start = tf.constant(_BEGIN, tf.int64)
    _, found, size = tf.while_loop(
        lambda position, *unused: position < length,
        step,
        (start, start, tf.constant(0)),
        parallel_iterations=1,
        back_prop=False,
        maximum_iterations=_SEARCHED,
    )
    return tf.strings.substr(encoded, tf.minimum(found + _CONTENT, length), tf.cast(size, tf.int64))


def _length(content: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(content), tf.int64)


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
    turned = tf.raw_ops.Reverse(tensor=turned, dims=tf.gather(_REVERSED, orientation))
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

    The image is turned by its EXIF orientation, and laid on white where it is transparent. The result for other images
    equals that of `Preprocessing.resize_encoded`, to the bit.
    """
    shape, orientation = image_shape(encoded), exif_orientation(encoded)
    return tf.cond(
        tf.logical_or(is_png(encoded), orientation > UPRIGHT),
        lambda: preprocessing.resize_decoded(decode_as_viewed(encoded, shape, orientation)),
        lambda: preprocessing.resize_encoded(encoded, shape),
    )
