"""Sources of the random numbers of one image, or of a group of images that are drawn together.

The numbers of a seed are a pure function of it, independent of earlier draws, of parallelism, and of the group.
"""

from typing import Any, Callable, Optional, Sequence

import numpy as np

from compat import tf

# A function that draws uniform numbers in [minval, maxval), with the arguments of
# `tf.random.uniform(shape, minval, maxval, dtype)`. For a group of images, the result is [images, *shape].
Uniform = Callable[..., tf.Tensor]

# The highest byte of a seed's second number is free; the index of the call is put there.
_CALL_SHIFT = 56


class StatelessUniform:
    """Draws uniform numbers like `tf.random.uniform`; the n-th call is a pure function of (seed, n).

    Calls are counted when the graph is built. A call inside a function of `Dataset.map` is therefore one call, and
    gives different numbers to elements with different seeds. Numbers of different seeds or calls are independent,
    because Philox (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3") mixes all bits of a seed.

    A seed is int64 [2]: any number, and a number in [0, 2**56), such as an image's position in a run; for a group of
    images, int64 [images, 2].
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
            return self._drawn(seed, lambda seed: tf.random.stateless_uniform(shape, seed, minval, maxval, dtype))
        # tf.random.stateless_uniform computes the same, with three to nine operations more.
        size = tf.constant(shape, tf.int32, [len(shape)])
        drawn = self._drawn(seed, lambda seed: tf.raw_ops.StatelessRandomUniform(shape=size, seed=seed, dtype=dtype))
        lowest = np.float32(minval)
        span = np.float32(maxval) - lowest
        return drawn if (lowest, span) == (0, 1) else drawn * span + lowest

    @staticmethod
    def _drawn(seed: tf.Tensor, draw: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Draws for one seed, or for each of a group: an operation takes one seed."""
        if seed.shape.ndims == 1:
            return draw(seed)
        return tf.stack([draw(each) for each in tf.unstack(seed)])


class UnseededUniform:
    """Draws uniform numbers for a group of `images` images with TensorFlow's own generators."""

    def __init__(self, images: int) -> None:
        self._images = images

    def __call__(
        self, shape: Sequence[int], minval: Any = 0, maxval: Any = 1, dtype: tf.DType = tf.float32
    ) -> tf.Tensor:
        """Draws uniform numbers in [minval, maxval), float32 or integers, [images, *shape]."""
        return tf.random.uniform([self._images, *shape], minval, maxval, dtype)


def uniform_of(seed: Optional[tf.Tensor], images: Optional[int] = None) -> Uniform:
    """The source of random numbers of an image, or of a group; without a seed, TensorFlow's own generators."""
    if seed is not None:
        return StatelessUniform(seed)
    return tf.random.uniform if images is None else UnseededUniform(images)


def uses_generators(uniform: Uniform) -> bool:
    """Whether a source draws with TensorFlow's own generators, whose state is independent of images' seeds."""
    return uniform is tf.random.uniform or isinstance(uniform, UnseededUniform)
