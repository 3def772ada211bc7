"""Converts binary PPM images, which TensorFlow cannot decode, to PNG images."""

from compat import tf
from compat.graph_checks import require

_MAGIC = 'P6'
# Width, height and 255, each after white space or comments, and one white-space character.
_GAP = r'(?:\s|#[^\r\n]*[\r\n])+'
HEADER = rf'^{_MAGIC}{_GAP}(\d{{1,6}}){_GAP}(\d{{1,6}}){_GAP}255\s'
# \C matches any byte. The pixels are not valid UTF-8, so that no other expression matches them.
_WHOLE_HEAD = HEADER + r'\C*'
# The longest header with its comments, in bytes.
HEADER_BYTES = 1024


def as_png(encoded: tf.Tensor) -> tf.Tensor:
    """Converts PPM images to PNG images, and returns others unchanged: a string scalar, or strings [images].

    At run time, `tf.errors.InvalidArgumentError` is raised for a PPM image that is truncated, or not of 8 bits per
    channel.
    """
    is_ppm = tf.equal(tf.strings.substr(encoded, 0, len(_MAGIC)), _MAGIC)
    if encoded.shape.ndims == 0:
        return tf.cond(is_ppm, lambda: _convert(encoded), lambda: encoded)
    return tf.cond(tf.reduce_any(is_ppm), lambda: tf.map_fn(as_png, encoded), lambda: encoded)


def _convert(encoded: tf.Tensor) -> tf.Tensor:
    head = tf.strings.substr(encoded, 0, HEADER_BYTES)
    fits = require(tf.strings.regex_full_match(head, _WHOLE_HEAD), ['not a PPM image of 8 bits per channel'])
    with tf.control_dependencies([fits]):
        width, height = (
            tf.strings.to_number(tf.strings.regex_replace(head, _WHOLE_HEAD, group), tf.int64)
            for group in (r'\1', r'\2')
        )
    rest = tf.strings.regex_replace(head, HEADER, '', replace_global=False)
    begin = tf.cast(tf.strings.length(head) - tf.strings.length(rest), tf.int64)
    size = height * width * 3
    whole = tf.logical_and(size > 0, begin + size <= tf.cast(tf.strings.length(encoded), tf.int64))
    with tf.control_dependencies([require(whole, ['a truncated PPM image'])]):
        pixels = tf.io.decode_raw(tf.strings.substr(encoded, begin, size), tf.uint8)
    # The fastest compression: the image is decoded immediately.
    return tf.image.encode_png(tf.reshape(pixels, [height, width, 3]), compression=1)
