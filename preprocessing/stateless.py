"""Random numbers that are a pure function of a seed, independent of what ran before and of parallelism."""

from typing import Any, Callable, Optional, Sequence

import numpy as np

from console.tensorflow_versions import tf

# A function that draws uniform numbers in [minval, maxval), with the arguments of
# `tf.random.uniform(shape, minval, maxval, dtype)`.
Uniform = Callable[..., tf.Tensor]

# The highest byte of a seed's second number is free; the index of the call is put there.
_CALL_SHIFT = 56


class StatelessUniform:
    """Draws uniform numbers like `tf.random.uniform`; those of the n-th call are a pure function of (seed, n).

    Calls are counted when the graph is built. A call inside a function of `Dataset.map` is therefore one call, and
    gives different numbers to elements with different seeds. Numbers of different seeds or calls are independent,
    because Philox (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3") mixes all bits of a seed.

    Args:
      seed: int64 [2]: any number, and a number in [0, 2**56), such as an image's position in a run.
    """

    def __init__(self, seed: tf.Tensor) -> None:
        self._seed = seed
        self._calls = 0

    def __call__(
        self, shape: Sequence[int], minval: Any = 0, maxval: Any = 1, dtype: tf.DType = tf.float32
    ) -> tf.Tensor:
        """Draws uniform numbers in [minval, maxval), float32 or integers, of a shape."""
        seed = self._seed + tf.constant([0, self._calls << _CALL_SHIFT], tf.int64)
        self._calls += 1
        if dtype != tf.float32:
            return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype)
        # tf.random.stateless_uniform computes the same, with three to nine operations more.
        drawn = tf.raw_ops.StatelessRandomUniform(shape=shape, seed=seed, dtype=dtype)
        lowest = np.float32(minval)
        span = np.float32(maxval) - lowest
        return drawn if (lowest, span) == (0, 1) else drawn * span + lowest


def seeded_uniform(seed: Optional[tf.Tensor]) -> Uniform:
    """Returns a `StatelessUniform` of a seed, or `tf.random.uniform` if there is none."""
    return tf.random.uniform if seed is None else StatelessUniform(seed)
