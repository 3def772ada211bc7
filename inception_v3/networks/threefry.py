"""Threefry: random bits as a function of a key and a counter, made of operations that every device has.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011), section 4.1: two words of 32 bits, 20 rounds.
Unlike TensorFlow's stateless operations, it can draw any part of a tensor alone: a core draws only the numbers of its
own images, and they do not depend on the number of cores.
"""

from typing import List, Tuple

from compat import tf

_BITS = 32
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_ROUNDS_PER_KEY = 4
_ROUNDS = 20
# The bits of a float32 in [0, 1).
_FLOAT_BITS = 24

_Words = Tuple[tf.Tensor, tf.Tensor]


def uniform_rows(key: _Words, rows: tf.Tensor, columns: int) -> tf.Tensor:
    """Draws uniform numbers in [0, 1), float32 [rows, columns]; each is a function of the key, its row and its column.

    The key is two int32 scalars, and the numbers of the rows are int32.
    """
    # A pair of words gives the numbers of two columns.
    pairs = -(-columns // 2)
    first = tf.tile(rows[:, tf.newaxis], [1, pairs])
    words = tf.concat(threefry(key, (first, tf.zeros_like(first) + tf.range(pairs))), axis=1)[:, :columns]
    return tf.cast(_shifted_right(words, _BITS - _FLOAT_BITS), tf.float32) * 2.0**-_FLOAT_BITS


def threefry(key: _Words, counter: _Words) -> _Words:
    """The two words of random bits of each counter, int32, for a key of two int32 scalars.

    Additions wrap around, as for unsigned numbers.
    """
    xor = tf.bitwise.bitwise_xor
    keys: List[tf.Tensor] = [*key, xor(xor(key[0], key[1]), _PARITY)]
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for number in range(1, _ROUNDS // _ROUNDS_PER_KEY + 1):
        for rotation in _ROTATIONS[(number - 1) % 2]:
            x += y
            y = xor(_rotated_left(y, rotation), x)
        x, y = x + keys[number % 3], y + keys[(number + 1) % 3] + number
    return x, y


def _rotated_left(words: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.bitwise_or(tf.bitwise.left_shift(words, bits), _shifted_right(words, _BITS - bits))


def _shifted_right(words: tf.Tensor, bits: int) -> tf.Tensor:
    """Shifts words right, filling with zeros; TensorFlow's operation repeats the sign."""
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(words, bits), (1 << (_BITS - bits)) - 1)
