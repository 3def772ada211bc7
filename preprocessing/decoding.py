"""Encoded images to pixels: whole ones, and crops without the cost of the rest."""

from typing import NamedTuple

import tensorflow as tf

# The marker that ends a JPEG file (ITU-T T.81, table B.1).
_END_OF_IMAGE = b'\xff\xd9'
# How a PNG file begins, and where its width and height are, as 32-bit numbers (ISO/IEC 15948, 5.2 and 11.2.2).
_PNG_BEGINS = b'\x89PNG'
_PNG_SIZE_AT = 16

# Markers of frames (T.81, table B.1), which say the size of a JPEG, and as far as they are looked for: in files that
# people have, they come before that, and beyond it a size is only seen when memory was asked for.
_FRAMES = [byte in {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC} for byte in range(256)]
_FRAME_BEFORE = 1 << 14

# Of a larger image, a file of a few thousand bytes can make gigabytes.
MAX_PIXELS = 100_000_000


class Crop(NamedTuple):
    """A box in an image, in pixels: int32 scalars."""

    top: tf.Tensor
    left: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG or one-frame GIF image to RGB.

    Args:
      encoded: a string scalar, the bytes of the file.

    Returns:
      A uint8 tensor of shape [height, width, 3]. Grey images have three equal channels; transparency is
      dropped.

    Raises:
      tf.errors.InvalidArgumentError: when run on bytes that cannot be decoded, or are cut short, or promise more than
        `MAX_PIXELS` pixels.
    """

    def decode() -> tf.Tensor:
        # This operation looks at the first bytes and takes all three formats, in spite of its name.
        return tf.image.decode_jpeg(encoded, channels=3)

    def decode_if_small() -> tf.Tensor:
        with tf.control_dependencies([_header_shape(encoded)]):
            return decode()

    # A GIF's pixels are no more than its bytes can hold.
    pixels = tf.cond(_has_header(encoded), decode_if_small, decode)
    pixels.set_shape([None, None, 3])
    return pixels


def image_shape(encoded: tf.Tensor) -> tf.Tensor:
    """The height, width and channels of an encoded image, int32 [3]; read from the header of a JPEG or PNG file.

    Args:
      encoded: a string scalar, the bytes of a file that `decode_image` takes.

    Raises:
      tf.errors.InvalidArgumentError: when run on a file that has no such header, or promises more than `MAX_PIXELS`
        pixels.
    """
    shape = tf.cond(
        _has_header(encoded),
        lambda: _header_shape(encoded),
        lambda: tf.shape(tf.image.decode_jpeg(encoded, channels=3)),
    )
    shape.set_shape([3])
    return shape


def _is_png(encoded: tf.Tensor) -> tf.Tensor:
    # To cut out what is not there fails with a message that holds the bytes, of which Python crashes. What is shorter
    # fails in decoding.
    size = tf.strings.length(encoded)
    begin = tf.strings.substr(encoded, 0, tf.minimum(size, len(_PNG_BEGINS)))
    return tf.logical_and(tf.equal(begin, _PNG_BEGINS), size >= _PNG_SIZE_AT + 8)


def _has_header(encoded: tf.Tensor) -> tf.Tensor:
    """Whether `_header_shape` reads the header of such files."""
    return tf.logical_or(tf.image.is_jpeg(encoded), _is_png(encoded))


def _header_shape(encoded: tf.Tensor) -> tf.Tensor:
    """The shape that the header of a JPEG or PNG file says, int32 [3]; fails if those are too many pixels."""

    def of_png() -> tf.Tensor:
        size = tf.strings.substr(encoded, _PNG_SIZE_AT, 8)
        width_and_height = tf.io.decode_raw(size, tf.int32, little_endian=False)
        return tf.concat([width_and_height[::-1], [3]], 0)

    def of_jpeg() -> tf.Tensor:
        # Of a progressive file, this decodes all to tell its size.
        with tf.control_dependencies([_check_pixels(_promised_pixels(encoded))]):
            return tf.image.extract_jpeg_shape(tf.identity(encoded))

    shape = tf.cond(tf.image.is_jpeg(encoded), of_jpeg, of_png)
    sides = tf.cast(shape[:2], tf.int64)
    pixels = tf.where(tf.reduce_min(sides) > 0, tf.reduce_prod(sides), tf.constant(-1, tf.int64))
    with tf.control_dependencies([tf.Assert(pixels > 0, ['an image of', sides, 'pixels']), _check_pixels(pixels)]):
        return tf.identity(shape)


def _check_pixels(pixels: tf.Tensor) -> tf.Operation:
    return tf.Assert(pixels <= MAX_PIXELS, ['an image of', pixels, 'pixels; there may be', MAX_PIXELS])


def _promised_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """The most pixels that a frame in the beginning of a JPEG file promises, int64 scalar; 0 if none is found."""
    begin = tf.strings.substr(encoded, 0, tf.minimum(tf.strings.length(encoded), _FRAME_BEFORE))
    content = tf.io.decode_raw(begin, tf.uint8)
    # Marker, length in two bytes, bits per colour, height and width in two each, and colours.
    places = tf.where(tf.equal(content[:-9], 0xFF))
    segments = tf.cast(tf.gather(content, places + tf.range(1, 10, dtype=tf.int64)), tf.int32)
    is_frame = tf.logical_and(
        tf.gather(_FRAMES, segments[:, 0]), tf.equal(segments[:, 1] * 256 + segments[:, 2], 8 + 3 * segments[:, 8])
    )
    sides = tf.cast(tf.boolean_mask(segments, is_frame)[:, 4:8], tf.int64)
    pixels = (sides[:, 0] * 256 + sides[:, 1]) * (sides[:, 2] * 256 + sides[:, 3])
    return tf.reduce_max(tf.concat([[0], pixels], 0))


def decode_crop(encoded: tf.Tensor, crop: Crop) -> tf.Tensor:
    """Decodes a part of an image: to the very pixels that decoding all of it and cutting the part out gives.

    Of a JPEG, the rows above and below the crop, and the pixels beside it, are not made.

    Args:
      encoded: a string scalar, the bytes of a file that `decode_image` takes.
      crop: a box in the image, whose size is `image_shape`.

    Returns:
      A uint8 tensor of shape [crop height, crop width, 3].

    Raises:
      tf.errors.InvalidArgumentError: as `decode_image`.
    """

    def of_jpeg() -> tf.Tensor:
        # Chroma is interpolated between neighbours, and the outermost columns of what is decoded lack one: so one more
        # on each side is decoded, and left out.
        left = tf.maximum(crop.left - 1, 0)
        # After `image_shape`, of which the crop comes, has found that these are not too many pixels.
        with tf.control_dependencies([crop.width]):
            width = tf.image.extract_jpeg_shape(tf.identity(encoded))[1]
        right = tf.minimum(crop.left + crop.width + 1, width)
        window = tf.stack([crop.top, left, crop.height, right - left])
        wider = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
        return apply_crop(wider, Crop(tf.constant(0), crop.left - left, crop.height, crop.width))

    pixels = tf.cond(_is_whole_jpeg(encoded), of_jpeg, lambda: apply_crop(decode_image(encoded), crop))
    pixels.set_shape([None, None, 3])
    return pixels


def apply_crop(image: tf.Tensor, crop: Crop) -> tf.Tensor:
    """Cuts the box out of an image of shape [height, width, channels]."""
    # Of a matrix, TensorFlow copies whole rows; of anything else, one value after the other.
    channels = int(image.shape[2])
    rows = tf.reshape(image, [tf.shape(image)[0], -1])
    cropped = tf.slice(rows, [crop.top, crop.left * channels], [crop.height, crop.width * channels])
    return tf.reshape(cropped, [crop.height, crop.width, channels])


def _is_whole_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    """Whether a file is a JPEG with an end: of one that is cut short, a crop that lies above the cut would decode."""
    size = tf.strings.length(encoded)
    end = tf.strings.substr(encoded, tf.maximum(size - len(_END_OF_IMAGE), 0), len(_END_OF_IMAGE))
    return tf.logical_and(tf.image.is_jpeg(encoded), tf.equal(end, _END_OF_IMAGE))
