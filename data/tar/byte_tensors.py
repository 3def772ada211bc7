"""Operations on strings and numbers in tensors of bytes."""

import functools
from typing import Tuple, Union

from console.tensorflow_versions import tf
from data.tar.layout import BLANKS


def number_in(text: tf.Tensor, base: int) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Parses numbers in ASCII, with optional blanks before and after them, of uint8 [numbers, letters].

    Returns the values, int64 [numbers], 0 if there are only blanks; whether each text is a number or blank; and whether
    it is not blank.
    """
    # In unsigned arithmetic, letters below '0' wrap around to values above 9.
    digits = text - ord('0')
    is_digit = digits < base
    counted = tf.cast(is_digit, tf.int64)
    # 1 at the beginning of a number, and -1 after its end.
    edges = tf.pad(counted, [[0, 0], [0, 1]]) - tf.pad(counted, [[0, 0], [1, 0]])
    begins = tf.reduce_sum(tf.maximum(edges, 0), axis=1)
    power = tf.cumsum(counted, axis=1, exclusive=True, reverse=True)
    factors = tf.gather(tf.constant([base**i for i in range(text.shape[1] + 1)], tf.int64), power)
    value = tf.reduce_sum(tf.cast(digits, tf.int64) * counted * factors, axis=1)
    is_valid = tf.reduce_all(tf.logical_or(is_digit, is_one_of(text, BLANKS)), axis=1)
    return value, tf.logical_and(is_valid, begins <= 1), begins > 0


def texts(raw: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, width: int) -> tf.Tensor:
    """Copies pieces of `raw`, uint8 [bytes], into rows, uint8 [pieces, width], padded with zeros."""
    letters = tf.range(width, dtype=tf.int64)[tf.newaxis]
    text = tf.gather(raw, tf.clip_by_value(starts[:, tf.newaxis] + letters, 0, size_of(raw) - 1))
    return select(letters < lengths[:, tf.newaxis], text, 0)


def until_zero(text: tf.Tensor) -> tf.Tensor:
    """The number of letters before the first zero, int64 [texts], of uint8 [texts, letters]."""
    ends = tf.pad(tf.cast(tf.equal(text, 0), tf.int8), [[0, 0], [0, 1]], constant_values=1)
    return tf.argmax(ends, axis=1)


def is_one_of(values: tf.Tensor, allowed: bytes) -> tf.Tensor:
    """Whether each byte of `values`, uint8, is in `allowed`: bool, in the shape of `values`."""
    return tf.gather([byte in allowed for byte in range(256)], tf.cast(values, tf.int32))


def all_of(*conditions: tf.Tensor) -> tf.Tensor:
    """The logical AND of conditions."""
    return functools.reduce(tf.logical_and, conditions)


def any_of(*conditions: tf.Tensor) -> tf.Tensor:
    """The logical OR of conditions."""
    return functools.reduce(tf.logical_or, conditions)


def select(condition: tf.Tensor, yes: Union[tf.Tensor, int], no: Union[tf.Tensor, int]) -> tf.Tensor:
    """`tf.where` with broadcasting; a Python number takes the type of the tensor."""
    dtype = next(each.dtype for each in (yes, no) if not isinstance(each, int))
    return tf.where_v2(condition, tf.cast(yes, dtype), tf.cast(no, dtype))


def size_of(tensor: tf.Tensor) -> tf.Tensor:
    """The number of elements, int64 scalar."""
    return tf.size(tensor, out_type=tf.int64)
