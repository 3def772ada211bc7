"""Random numbers that are a pure function of a seed, whatever ran before and however many images at a time."""

from typing import Any, Callable, Sequence

import tensorflow as tf

# What draws uniform numbers in [minval, maxval): called as `tf.random.uniform(shape, minval, maxval, dtype)` is.
Uniform = Callable[..., tf.Tensor]

# The second number of a seed has its highest byte free: the number of the call goes there.
_CALL_SHIFT = 56


class StatelessUniform:
    """Draws uniform numbers like `tf.random.uniform`: those of the n-th call are a pure function of (seed, n).

    Calls are counted where the graph is built: one that is in a function of `Dataset.map` has its own number, and
    gives every element of another seed other numbers. Numbers of different seeds, and of different calls, are
    independent: Philox (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3") scrambles all bits of a seed.

    Attributes:
      seed: int64 [2]: any number, and one in [0, 2**56), such as an image's position in a run.
    """

    def __init__(self, seed: tf.Tensor) -> None:
        self._seed = seed
        self._calls = 0

    def __call__(
        self, shape: Sequence[int], minval: Any = 0, maxval: Any = 1, dtype: tf.DType = tf.float32
    ) -> tf.Tensor:
        """Uniform numbers in [minval, maxval), of a shape, float32 or integers."""
        seed = self._seed + tf.constant([0, self._calls << _CALL_SHIFT], tf.int64)
        self._calls += 1
        return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype)
