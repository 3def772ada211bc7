"""Decodes images, and crops of images without decoding the rest."""

from typing import NamedTuple

import numpy as np

from compat import tf

# The marker that ends a JPEG file (ITU-T T.81, table B.1).
_END_OF_IMAGE = b'\xff\xd9'
# The first bytes of a PNG file, and the offset of its width and height: 32-bit big-endian numbers (ISO/IEC 15948, 5.2
# and 11.2.2).
_PNG_SIGNATURE = b'\x89PNG'
_PNG_SIZE_OFFSET = 16
# The first bytes of a GIF file, and the offset of its width and height: 16-bit little-endian numbers (GIF89a, 18).
_GIF_SIGNATURE = b'GIF'
_GIF_SIZE_OFFSET = 6

# The second bytes of frame markers (T.81, table B.1): a frame header holds the size of a JPEG. Only this many first
# bytes of a file are searched for headers. In real files, headers come earlier; a later header is noticed only after
# memory has been allocated for the image.
_IS_FRAME = [byte in {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC} for byte in range(256)]
_FRAME_SEARCH_BYTES = 1 << 14
# A frame header (B.2.2) consists of the marker, the header's length in two bytes, the bits per sample in one byte,
# height and width in two bytes each, the number of components in one byte, and three bytes per component. Multiplying
# the nine bytes after 0xFF by this matrix gives three numbers: bits << 16 plus the length without the components; the
# height; the width. Images that can be decoded have 8 bits, and the length without the components is 8. Requiring both
# keeps other bytes from being mistaken for a header, except in one of millions of images that begin with 16 KiB of
# noise.
_HEADER_FIELDS = np.zeros([9, 3])
_HEADER_FIELDS[[3, 1, 2, 8], 0] = 1 << 16, 256, 1, -3
_HEADER_FIELDS[[4, 5], 1] = _HEADER_FIELDS[[6, 7], 2] = 256, 1
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
_USUAL_SIZE, _USUAL_HEADER_BYTES = slice(163, 167), 168

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


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG or one-frame GIF image, a string scalar, to RGB: uint8 [height, width, 3].

    Grey images have three equal channels; transparency is dropped.

    Raises:
      tf.errors.InvalidArgumentError: at run time, if the bytes cannot be decoded or are truncated, or if the image has
        more than `MAX_PIXELS` pixels.
    """
    with tf.control_dependencies([image_shape(encoded)]):
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
    # The header of a usual file is found in a third of the time.
    first_bytes = tf.raw_ops.DecodePaddedRaw(
        input_bytes=encoded, fixed_length=_USUAL_HEADER_BYTES, out_type=tf.uint8, little_endian=True
    )
    usual_bytes = np.array([*_USUAL_BYTES.values()], np.uint8)
    is_usual = tf.reduce_all(tf.equal(tf.gather(first_bytes, [*_USUAL_BYTES], axis=-1), usual_bytes), -1)

    def of_usual_jpegs() -> tf.Tensor:
        high_and_low = tf.cast(first_bytes[..., _USUAL_SIZE], tf.int32)
        height_and_width = high_and_low[..., ::2] * 256 + high_and_low[..., 1::2]
        return tf.pad(height_and_width, [[0, 0]] * encoded.shape.ndims + [[0, 1]], constant_values=3)

    def with_others() -> tf.Tensor:
        if encoded.shape.ndims == 0:
            return _shape_of_any(encoded)
        others = tf.where(tf.logical_not(is_usual))
        found = tf.map_fn(_shape_of_any, tf.gather_nd(encoded, others), tf.int32)
        return tf.tensor_scatter_nd_update(of_usual_jpegs(), others, found)

    return _checked_shape(tf.cond(tf.reduce_all(is_usual), of_usual_jpegs, with_others))


def _shape_of_any(encoded: tf.Tensor) -> tf.Tensor:
    def of_jpeg() -> tf.Tensor:
        # For a progressive file, extract_jpeg_shape decodes the whole image.
        with tf.control_dependencies([_check_pixels(_jpeg_header_pixels(encoded))]):
            return tf.image.extract_jpeg_shape(tf.identity(encoded))

    def of_png() -> tf.Tensor:
        size = tf.strings.substr(encoded, _PNG_SIZE_OFFSET, 8)
        width_and_height = tf.io.decode_raw(size, tf.int32, little_endian=False)
        return tf.concat([width_and_height[::-1], [3]], 0)

    def of_gif() -> tf.Tensor:
        # Decoding also reports files that are not images.
        checks = [_check_pixels(_gif_header_pixels(encoded))]
        if hasattr(tf.io, 'decode_webp'):
            # There, it would also decode WebP, whose size is not checked, and data sets would depend on the version.
            is_gif = tf.equal(tf.strings.substr(encoded, 0, len(_GIF_SIGNATURE)), _GIF_SIGNATURE)
            checks.append(_require(is_gif, 'not a JPEG, PNG or GIF image'))
        with tf.control_dependencies(checks):
            return tf.shape(_decode(tf.identity(encoded)))

    shape = tf.cond(tf.image.is_jpeg(encoded), of_jpeg, lambda: tf.cond(is_png(encoded), of_png, of_gif))
    shape.set_shape([3])
    return shape


def is_png(encoded: tf.Tensor) -> tf.Tensor:
    """Tells whether a file is a PNG with a size in its header."""
    # Shorter files are not treated as PNG: substr beyond the end fails with a message that contains the bytes, and
    # Python crashes on such a message.
    return tf.logical_and(
        tf.equal(tf.strings.substr(encoded, 0, len(_PNG_SIGNATURE)), _PNG_SIGNATURE),
        tf.strings.length(encoded) >= _PNG_SIZE_OFFSET + 8,
    )


def _gif_header_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the number of pixels in a GIF file's header, int64 scalar; 0 for other files."""
    header = tf.strings.join([tf.strings.substr(encoded, 0, _GIF_SIZE_OFFSET + 4), '\0' * (_GIF_SIZE_OFFSET + 4)])
    width_and_height = tf.io.decode_raw(tf.strings.substr(header, _GIF_SIZE_OFFSET, 4), tf.uint16)
    is_gif = tf.equal(tf.strings.substr(header, 0, len(_GIF_SIGNATURE)), _GIF_SIGNATURE)
    return tf.reduce_prod(tf.cast(width_and_height, tf.int64)) * tf.cast(is_gif, tf.int64)


def _checked_shape(shape: tf.Tensor) -> tf.Tensor:
    """Returns the shapes of images [..., 3]; fails if an image has no pixels, or too many."""
    sides = tf.cast(shape[..., :2], tf.int64)
    # A PNG header can hold two negative sides, whose product is positive.
    pixels = tf.reduce_prod(tf.maximum(sides, 0), -1)
    has_pixels = _require(tf.reduce_all(pixels > 0), 'an image of no pixels')
    with tf.control_dependencies([has_pixels, _check_pixels(tf.reduce_max(pixels))]):
        return tf.identity(shape)


def _check_pixels(pixels: tf.Tensor) -> tf.Operation:
    return _require(pixels <= MAX_PIXELS, f'an image of more than {MAX_PIXELS} pixels')


def _require(condition: tf.Tensor, message: str) -> tf.Operation:
    # `tf.Assert` adds a dozen operations, which format the message only when it is needed.
    return tf.raw_ops.Assert(condition=condition, data=[tf.constant(message)])


def _jpeg_header_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the largest number of pixels in a frame header of a JPEG file, float64 scalar.

    Only the first `_FRAME_SEARCH_BYTES` bytes are searched; without a header there, the number is at most 0.
    """
    content = tf.io.decode_raw(tf.strings.substr(encoded, 0, _FRAME_SEARCH_BYTES), tf.uint8)
    markers = tf.where(tf.equal(content[:-_HEADER_BYTES], 0xFF))
    frames = tf.gather(content, markers + np.arange(1, 1 + _HEADER_BYTES))
    is_frame = tf.gather(_IS_FRAME, tf.cast(frames[:, 0], tf.int32))
    bits_and_length, height, width = tf.unstack(tf.matmul(tf.cast(frames, tf.float64), _HEADER_FIELDS), axis=1)
    is_frame = tf.logical_and(is_frame, tf.equal(bits_and_length, _BITS_AND_LENGTH))
    return tf.reduce_max(height * width * tf.cast(is_frame, tf.float64))


def decode_crop(encoded: tf.Tensor, shape: tf.Tensor, crop: Crop) -> tf.Tensor:
    """Decodes a crop of an image; the pixels equal those of decoding the whole image and then cropping it.

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
    axis = encoded.shape.ndims  # Not -1, which TensorFlow's inference of shapes does not know.
    whole = tf.zeros_like(left), tf.zeros_like(left), shape[..., 0], shape[..., 1]
    box = tf.where_v2(
        is_jpeg[..., tf.newaxis],
        tf.stack([crop.top, left, crop.height, right - left], axis),
        tf.stack(whole, axis),
    )
    # All sides but those of the image itself are in numbers, three for each pixel of a row.
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
    """Tells whether files, strings [...], of at least two bytes, are JPEGs that end in an end marker.

    A crop above the cut in a truncated file would decode without an error.
    """
    ends = tf.equal(tf.strings.substr(encoded, -len(_END_OF_IMAGE), len(_END_OF_IMAGE)), _END_OF_IMAGE)
    return tf.logical_and(tf.image.is_jpeg(encoded), ends)
