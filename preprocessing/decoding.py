"""Decodes images, and crops of images without decoding the rest."""

from typing import NamedTuple, Optional, Tuple

import numpy as np

from compat import tf
from compat.graph_checks import require

# The marker that ends a JPEG file (ITU-T T.81, table B.1).
_END_OF_IMAGE = b'\xff\xd9'
# The first bytes of a PNG file, and the offsets of its width and height: 32-bit big-endian numbers (ISO/IEC 15948, 5.2
# and 11.2.2).
_PNG_SIGNATURE = b'\x89PNG'
_PNG_WIDTH, _PNG_HEIGHT, _PNG_SIZE_END = 16, 20, 24
# The first bytes of a GIF file, and the places of its width and height among its 16-bit little-endian numbers (GIF89a,
# 18).
_GIF_SIGNATURE = b'GIF'
_GIF_SIZE, _GIF_SIZE_END = [3, 4], 10

# The second bytes of frame markers (T.81, table B.1): a frame header holds the size of a JPEG. Only this many first
# bytes of a file are searched for headers. In real files, headers come earlier; a later header is noticed only after
# memory has been allocated for the image.
_IS_FRAME = [byte in {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC} for byte in range(256)]
_FRAME_SEARCH_BYTES = 1 << 14
# A frame header (B.2.2) consists of the marker, the header's length in two bytes, the bits per sample in one byte,
# height and width in two bytes each, the number of components in one byte, and three bytes per component. Multiplying
# the nine bytes after 0xFF by this matrix gives four numbers: the marker's; bits << 16 plus the length without the
# components; the height; the width. Images that can be decoded have 8 bits, and the length without the components is 8.
# Requiring both keeps other bytes from being mistaken for a header, except in one of millions of images that begin with
# 16 KiB of noise.
_HEADER_FIELDS = np.zeros([9, 4])
_HEADER_FIELDS[0, 0] = 1
_HEADER_FIELDS[[3, 1, 2, 8], 1] = 1 << 16, 256, 1, -3
_HEADER_FIELDS[[4, 5], 2] = _HEADER_FIELDS[[6, 7], 3] = 256, 1
_HEADER_BYTES, _BITS_AND_LENGTH = len(_HEADER_FIELDS), (8 << 16) + 8

# The beginning of a usual JPEG file, as libjpeg writes it, by offsets: a JFIF segment of 16 bytes, two quantization
# tables of 65 bytes, and the header of a baseline frame of three components. These markers and lengths leave no room
# for another frame header.
_USUAL_BYTES = {
    **dict(enumerate(b'\xff\xd8\xff\xe0\x00\x10')),
    **dict(enumerate(b'\xff\xdb\x00\x43', 20)),
    **dict(enumerate(b'\xff\xdb\x00\x43', 89)),
    **dict(enumerate(b'\xff\xc0\x00\x11\x08', 158)),
    167: 3,
}
_USUAL_HEIGHT, _USUAL_WIDTH, _USUAL_HEADER_BYTES = 163, 165, 168

# The offsets of the bytes of height and width in a usual JPEG file, whose numbers have two bytes, and in a PNG file:
# int [2 kinds, 2 numbers, 4 bytes]. The weights of these bytes; a PNG's numbers overflow to negative ones.
_SIZE_OFFSETS = np.array([[_USUAL_HEIGHT - 2, _USUAL_WIDTH - 2], [_PNG_HEIGHT, _PNG_WIDTH]])[..., np.newaxis] + range(4)
_SIZE_WEIGHTS = np.array([[[0, 0, 1 << 8, 1]], [[1 << 24, 1 << 16, 1 << 8, 1]]], np.int32)

# Columns of pixels that most JPEG files encode together. The decoder copies every row if a crop begins elsewhere.
_BLOCK_COLUMNS = 16

# The largest image that is decoded: a file of a few thousand bytes could otherwise expand to gigabytes.
MAX_PIXELS = 100_000_000


class Crop(NamedTuple):
    """A box in an image, in pixels: int32 scalars; for a group of images, each int32 [images]."""

    top: tf.Tensor
    left: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor


class DecodePlan(NamedTuple):
    """The steps to decode a crop of an image: int32 tensors; for a group of images, with a first axis of images."""

    # bool, whether the file is a JPEG of which only `decoded_box` is decoded; others are decoded as a whole.
    is_whole_jpeg: tf.Tensor
    decoded_box: tf.Tensor  # [4], top, left, height and width of the pixels to decode.
    decoded_shape: tf.Tensor  # [2], the shape of the decoded pixels as a matrix, a row of the image in each row.
    # Each [2], the part of the matrix that is the crop.
    begin: tf.Tensor
    size: tf.Tensor
    shape: tf.Tensor  # [3], the shape of the crop.


def decode_image(encoded: tf.Tensor, shape: Optional[tf.Tensor] = None) -> tf.Tensor:
    """Decodes a JPEG, PNG or one-frame GIF image, a string scalar, to RGB: uint8 [height, width, 3].

    Grey images have three equal channels; transparency is dropped. The shape is from `image_shape`, if it is known
    already.

    Raises:
      tf.errors.InvalidArgumentError: at run time, if the bytes cannot be decoded or are truncated, or if the image has
        more than `MAX_PIXELS` pixels.
    """
    with tf.control_dependencies([image_shape(encoded) if shape is None else shape]):
        return _decode(tf.identity(encoded))


def _decode(encoded: tf.Tensor) -> tf.Tensor:
    # Despite its name, this operation detects and decodes all three formats.
    return tf.image.decode_jpeg(encoded, channels=3)


def image_shape(encoded: tf.Tensor) -> tf.Tensor:
    """Height, width and channels of an encoded image, int32 [3]; of each image of a group, int32 [images, 3].

    The size of a JPEG or PNG file is read from its header. A GIF file is decoded. If its frame is larger than its
    header says, memory for the frame is allocated before the file is refused.

    Raises:
      tf.errors.InvalidArgumentError: at run time, if a file is not an image, or has more than `MAX_PIXELS` pixels.
    """
    # The headers of usual files are read together, in a fraction of the time that other files take.
    first_bytes = _padded(encoded, _USUAL_HEADER_BYTES, tf.uint8)
    usual_bytes = np.array([*_USUAL_BYTES.values()], np.uint8)
    is_usual = tf.reduce_all(tf.equal(tf.gather(first_bytes, [*_USUAL_BYTES], axis=-1), usual_bytes), -1)
    size_bytes = tf.cast(tf.gather(first_bytes, _SIZE_OFFSETS, axis=-1), tf.int32)
    of_usual, of_png = tf.unstack(tf.reduce_sum(size_bytes * _SIZE_WEIGHTS, -1), axis=-2)
    has_png = is_png(encoded)
    sides = tf.where_v2(tf.expand_dims(has_png, -1), of_png, of_usual)
    shape = tf.pad(sides, [[0, 0]] * encoded.shape.ndims + [[0, 1]], constant_values=3)
    is_known = tf.logical_or(is_usual, has_png)

    def with_others() -> tf.Tensor:
        if encoded.shape.ndims == 0:
            return _shape_of_other(encoded)
        others = tf.where(tf.logical_not(is_known))

        def with_next(index: tf.Tensor, shapes: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
            place = tf.gather(others, index)
            found = _shape_of_other(tf.gather_nd(encoded, place))
            return index + 1, tf.tensor_scatter_nd_update(shapes, [place], [found])

        return tf.while_loop(lambda index, shapes: index < tf.size(others), with_next, [0, shape])[1]

    return _checked_shape(tf.cond(tf.reduce_all(is_known), lambda: shape, with_others))


def _padded(encoded: tf.Tensor, size: int, dtype: tf.DType) -> tf.Tensor:
    """Returns the first bytes of files as little-endian numbers, with zeros after the end of a shorter file."""
    return tf.raw_ops.DecodePaddedRaw(input_bytes=encoded, fixed_length=size, out_type=dtype, little_endian=True)


def _shape_of_other(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the shape, int32 [3], of an image that is neither a usual JPEG nor a PNG."""

    def of_jpeg() -> tf.Tensor:
        # For a progressive file, extract_jpeg_shape decodes the whole image.
        with tf.control_dependencies([_check_pixels(_jpeg_header_pixels(encoded))]):
            return tf.image.extract_jpeg_shape(tf.identity(encoded))

    def of_gif() -> tf.Tensor:
        # Decoding also refuses files that are not images.
        is_gif = tf.equal(tf.strings.substr(encoded, 0, len(_GIF_SIGNATURE)), _GIF_SIGNATURE)
        sides = tf.gather(_padded(encoded, _GIF_SIZE_END, tf.uint16), _GIF_SIZE)
        checks = [_check_pixels(tf.reduce_prod(tf.cast(sides, tf.int64)) * tf.cast(is_gif, tf.int64))]
        if hasattr(tf.io, 'decode_webp'):
            # These versions also decode WebP, whose size is not checked. Data sets would depend on the version.
            checks.append(require(is_gif, ['not a JPEG, PNG or GIF image']))
        with tf.control_dependencies(checks):
            return tf.shape(_decode(tf.identity(encoded)))

    shape = tf.cond(tf.image.is_jpeg(encoded), of_jpeg, of_gif)
    shape.set_shape([3])
    return shape


def is_png(encoded: tf.Tensor) -> tf.Tensor:
    """Whether a file is a PNG with a size in its header."""
    # Shorter files are not treated as PNG: substr beyond the end fails with a message that contains the bytes, and
    # Python crashes on such a message.
    return tf.logical_and(
        tf.equal(tf.strings.substr(encoded, 0, len(_PNG_SIGNATURE)), _PNG_SIGNATURE),
        tf.strings.length(encoded) >= _PNG_SIZE_END,
    )


def _checked_shape(shape: tf.Tensor) -> tf.Tensor:
    """Returns the shapes of images [..., 3]; fails if an image has no pixels, or too many."""
    sides = shape[..., :2]
    has_pixels = require(tf.reduce_min(sides) > 0, ['an image of no pixels'])
    # After that check, because a PNG header can hold two negative sides, whose product is positive.
    with tf.control_dependencies([has_pixels]):
        pixels = tf.reduce_prod(tf.cast(sides, tf.int64), -1)
    with tf.control_dependencies([_check_pixels(tf.reduce_max(pixels))]):
        return tf.identity(shape)


def _check_pixels(pixels: tf.Tensor) -> tf.Operation:
    return require(pixels <= MAX_PIXELS, [f'an image of more than {MAX_PIXELS} pixels'])


def _jpeg_header_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the largest number of pixels in a frame header of a JPEG file, float64 scalar.

    Only the first `_FRAME_SEARCH_BYTES` bytes are searched; without a header there, the number is at most 0.
    """
    markers = tf.where(tf.equal(_padded(encoded, _FRAME_SEARCH_BYTES - _HEADER_BYTES, tf.uint8), 0xFF))
    content = _padded(encoded, _FRAME_SEARCH_BYTES, tf.uint8)
    headers = tf.cast(tf.gather(content, markers + np.arange(1, 1 + _HEADER_BYTES)), tf.float64)
    marker, bits_and_length, height, width = tf.unstack(tf.matmul(headers, _HEADER_FIELDS), axis=1)
    is_frame = tf.logical_and(
        tf.gather(_IS_FRAME, tf.cast(marker, tf.int32)), tf.equal(bits_and_length, _BITS_AND_LENGTH)
    )
    return tf.reduce_max(height * width * tf.cast(is_frame, tf.float64))


def decode_crop(encoded: tf.Tensor, shape: tf.Tensor, crop: Crop) -> tf.Tensor:
    """Decodes a crop of an image, with the same pixels as decoding the whole image and then cropping it.

    The pixels of a JPEG outside the crop are not computed. Damage below the crop is not noticed, except in a truncated
    file. The shape is from `image_shape`.

    Raises:
      tf.errors.InvalidArgumentError: as for `decode_image`, unless the damage is below the crop.
    """
    return decode_planned(encoded, decode_plan(encoded, shape, crop))


def decode_plan(encoded: tf.Tensor, shape: tf.Tensor, crop: Crop) -> DecodePlan:
    """The steps to decode a crop of an image, a string scalar, or of each of a group, [images]; see `decode_crop`."""
    # Chroma is interpolated between neighbouring columns, and the outermost decoded columns lack a neighbour. At least
    # one more column on each side is therefore decoded and then cut off.
    left = tf.maximum(crop.left - 1, 0) // _BLOCK_COLUMNS * _BLOCK_COLUMNS
    right = tf.minimum(crop.left + crop.width + 1, shape[..., 1])
    # Decode only after the check of the number of pixels in `image_shape`. A control dependency inside a branch would
    # have no effect in a data set's function.
    with tf.control_dependencies([shape]):
        is_jpeg = is_whole_jpeg(tf.identity(encoded))
    axis = encoded.shape.ndims  # Not -1, which TensorFlow's inference of shapes does not support.
    whole = tf.zeros_like(left), tf.zeros_like(left), shape[..., 0], shape[..., 1]
    box = tf.where_v2(
        is_jpeg[..., tf.newaxis],
        tf.stack([crop.top, left, crop.height, right - left], axis),
        tf.stack(whole, axis),
    )
    # A row of the decoded matrix has three numbers for each pixel.
    numbers = tf.constant([1, 3])
    return DecodePlan(
        is_jpeg,
        box,
        decoded_shape=box[..., 2:] * numbers,
        begin=(tf.stack([crop.top, crop.left], axis) - box[..., :2]) * numbers,
        size=tf.stack([crop.height, crop.width * 3], axis),
        shape=tf.stack([crop.height, crop.width, tf.fill(tf.shape(crop.width), 3)], axis),
    )


def decode_planned(encoded: tf.Tensor, plan: DecodePlan) -> tf.Tensor:
    """Decodes the crop of an image, a string scalar, by its plan: uint8 [crop height, crop width, 3]."""
    pixels = tf.cond(
        plan.is_whole_jpeg,
        lambda: tf.image.decode_and_crop_jpeg(encoded, plan.decoded_box, channels=3),
        lambda: _decode(encoded),
    )
    # TensorFlow copies whole rows of a matrix, but single values of a tensor of higher rank.
    cropped = tf.reshape(tf.slice(tf.reshape(pixels, plan.decoded_shape), plan.begin, plan.size), plan.shape)
    cropped.set_shape([None, None, 3])
    return cropped


def apply_crop(image: tf.Tensor, crop: Crop) -> tf.Tensor:
    """Cuts a box out of an image [height, width, channels]."""
    # TensorFlow copies whole rows of a matrix, but single values of a tensor of higher rank.
    channels = int(image.shape[2])
    rows = tf.reshape(image, [tf.shape(image)[0], -1])
    cropped = tf.slice(rows, [crop.top, crop.left * channels], [crop.height, crop.width * channels])
    return tf.reshape(cropped, [crop.height, crop.width, channels])


def is_whole_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    """Whether files, strings [...], of at least two bytes, are JPEGs that end in an end marker.

    A crop above the cut in a truncated file would decode without an error.
    """
    ends = tf.equal(tf.strings.substr(encoded, -len(_END_OF_IMAGE), len(_END_OF_IMAGE)), _END_OF_IMAGE)
    return tf.logical_and(tf.image.is_jpeg(encoded), ends)
