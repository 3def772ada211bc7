"""Checks inside a graph, each a single operation."""

from typing import Any, Sequence

from compat import tf


def require(condition: tf.Tensor, data: Sequence[Any]) -> tf.Operation:
    """Returns an operation that fails with the values of `data` if a condition, a bool scalar, does not hold.

    `tf.Assert` would add a dozen operations, to format the message only when it is needed.
    """
    return tf.raw_ops.Assert(condition=condition, data=data)
