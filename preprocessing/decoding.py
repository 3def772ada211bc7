"""Encoded images to pixels: whole ones, and crops without the cost of the rest."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# The marker that ends a JPEG file (ITU-T T.81, table B.1).
_END_OF_IMAGE = b'\xff\xd9'
# How a PNG file begins, and where its width and height are, as 32-bit numbers (ISO/IEC 15948, 5.2 and 11.2.2).
_PNG_BEGINS = b'\x89PNG'
_PNG_SIZE_AT = 16
# How a GIF file begins, and where its width and height are, as 16-bit numbers, the low byte first (GIF89a, 18).
_GIF_BEGINS = b'GIF'
_GIF_SIZE_AT = 6

# Markers of frames (T.81, table B.1), which say the size of a JPEG, and as far as they are looked for: in files that
# people have, they come before that, and beyond it a size is only seen when memory was asked for.
_FRAMES = [byte in {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC} for byte in range(256)]
_FRAME_BEFORE = 1 << 14
# A frame begins with (B.2.2) its marker, its length in two bytes, the bits per colour, height and width in two bytes
# each, and the number of colours, which take three bytes each. The products with these columns are the length without
# those, with the bits in front of it, the height, and the width. The bits are 8 in what can be decoded. That both are
# right keeps other bytes from being taken for a frame, but in one of millions of images with 16 KiB of noise before it.
_SAYS = np.zeros([9, 3])
_SAYS[[3, 1, 2, 8], 0] = 1 << 16, 256, 1, -3
_SAYS[[4, 5], 1] = _SAYS[[6, 7], 2] = 256, 1
_BYTES_OF_FRAME, _BITS_AND_LENGTH = len(_SAYS), (8 << 16) + 8

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
    with tf.control_dependencies([image_shape(encoded)]):
        return _decode(tf.identity(encoded))


def _decode(encoded: tf.Tensor) -> tf.Tensor:
    # This operation looks at the first bytes and takes all three formats, in spite of its name.
    return tf.image.decode_jpeg(encoded, channels=3)


def image_shape(encoded: tf.Tensor) -> tf.Tensor:
    """The height, width and channels of an encoded image, int32 [3]; read from the header of a JPEG or PNG file.

    A GIF file is decoded. One whose frame is larger than it says in the beginning takes the memory of that frame before
    it is refused.

    Args:
      encoded: a string scalar, the bytes of a file that `decode_image` takes.

    Raises:
      tf.errors.InvalidArgumentError: when run on a file that is no image, or promises more than `MAX_PIXELS` pixels.
    """

    def of_jpeg() -> tf.Tensor:
        # Of a progressive file, this decodes all to tell its size.
        with tf.control_dependencies([_check_pixels(_promised_pixels(encoded))]):
            return _of_few_pixels(tf.image.extract_jpeg_shape(tf.identity(encoded)))

    def of_png() -> tf.Tensor:
        size = tf.strings.substr(encoded, _PNG_SIZE_AT, 8)
        width_and_height = tf.io.decode_raw(size, tf.int32, little_endian=False)
        return _of_few_pixels(tf.concat([width_and_height[::-1], [3]], 0))

    def of_gif() -> tf.Tensor:
        # Which also says of what is no image that it is none.
        with tf.control_dependencies([_check_pixels(_promised_by_gif(encoded))]):
            return _of_few_pixels(tf.shape(_decode(tf.identity(encoded))))

    # A cut that begins behind the end fails with a message that holds the bytes, of which Python crashes.
    is_png = tf.logical_and(
        tf.equal(tf.strings.substr(encoded, 0, len(_PNG_BEGINS)), _PNG_BEGINS),
        tf.strings.length(encoded) >= _PNG_SIZE_AT + 8,
    )
    shape = tf.cond(tf.image.is_jpeg(encoded), of_jpeg, lambda: tf.cond(is_png, of_png, of_gif))
    shape.set_shape([3])
    return shape


def _promised_by_gif(encoded: tf.Tensor) -> tf.Tensor:
    """The pixels that the beginning of a GIF file promises, int64 scalar; 0 of another file."""
    begins = tf.strings.join([tf.strings.substr(encoded, 0, _GIF_SIZE_AT + 4), '\0' * (_GIF_SIZE_AT + 4)])
    width_and_height = tf.io.decode_raw(tf.strings.substr(begins, _GIF_SIZE_AT, 4), tf.uint16)
    is_gif = tf.equal(tf.strings.substr(begins, 0, len(_GIF_BEGINS)), _GIF_BEGINS)
    return tf.reduce_prod(tf.cast(width_and_height, tf.int64)) * tf.cast(is_gif, tf.int64)


def _of_few_pixels(shape: tf.Tensor) -> tf.Tensor:
    """The shape of an image; fails if it has no pixels, or too many."""
    sides = tf.cast(shape[:2], tf.int64)
    # Of two negative sides, which a PNG file may say, the product is positive.
    pixels = tf.reduce_prod(tf.maximum(sides, 0))
    with tf.control_dependencies([_require(pixels > 0, 'an image of no pixels'), _check_pixels(pixels)]):
        return tf.identity(shape)


def _check_pixels(pixels: tf.Tensor) -> tf.Operation:
    return _require(pixels <= MAX_PIXELS, f'an image of more than {MAX_PIXELS} pixels')


def _require(condition: tf.Tensor, message: str) -> tf.Operation:
    # `tf.Assert` is a dozen operations, which see to it that the message is put together only when it is needed.
    return tf.raw_ops.Assert(condition=condition, data=[tf.constant(message)])


def _promised_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """The most pixels that a frame in the beginning of a JPEG file promises, float64 scalar; if any."""
    content = tf.io.decode_raw(tf.strings.substr(encoded, 0, _FRAME_BEFORE), tf.uint8)
    markers = tf.where(tf.equal(content[:-_BYTES_OF_FRAME], 0xFF))
    frames = tf.gather(content, markers + np.arange(1, 1 + _BYTES_OF_FRAME))
    is_frame = tf.gather(_FRAMES, tf.cast(frames[:, 0], tf.int32))
    bits_and_length, height, width = tf.unstack(tf.matmul(tf.cast(frames, tf.float64), _SAYS), axis=1)
    is_frame = tf.logical_and(is_frame, tf.equal(bits_and_length, _BITS_AND_LENGTH))
    return tf.reduce_max(height * width * tf.cast(is_frame, tf.float64))


def decode_crop(encoded: tf.Tensor, shape: tf.Tensor, crop: Crop) -> tf.Tensor:
    """Decodes a part of an image: to the very pixels that decoding all of it and cutting the part out gives.

    Of a JPEG, the rows above and below the crop, and the pixels beside it, are not made. Damage below the crop is not
    noticed, but for a file that is cut short.

    Args:
      encoded: a string scalar, the bytes of a file that `decode_image` takes.
      shape: its `image_shape`.
      crop: a box in the image.

    Returns:
      A uint8 tensor of shape [crop height, crop width, 3].

    Raises:
      tf.errors.InvalidArgumentError: as `decode_image`, if what is wrong is not below the crop.
    """

    def of_jpeg() -> tf.Tensor:
        # Chroma is interpolated between neighbours, and the outermost columns of what is decoded lack one: so one more
        # on each side is decoded, and left out.
        left = tf.maximum(crop.left - 1, 0)
        right = tf.minimum(crop.left + crop.width + 1, shape[1])
        window = tf.stack([crop.top, left, crop.height, right - left])
        wider = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
        return apply_crop(wider, Crop(tf.constant(0), crop.left - left, crop.height, crop.width))

    # After the shape was found to be of few pixels. Within the branch, a data set's function would not wait for it.
    with tf.control_dependencies([shape]):
        checked = tf.identity(encoded)

    def of_others() -> tf.Tensor:
        return apply_crop(_decode(checked), crop)

    pixels = tf.cond(_is_whole_jpeg(encoded), of_jpeg, of_others)
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
    end = tf.strings.substr(encoded, tf.maximum(tf.strings.length(encoded) - len(_END_OF_IMAGE), 0), len(_END_OF_IMAGE))
    return tf.logical_and(tf.image.is_jpeg(encoded), tf.equal(end, _END_OF_IMAGE))
