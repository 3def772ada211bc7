"""Functions of TensorFlow under one name in both versions."""

import pytest

from console.tensorflow_versions import either, tf
from tests.support.graphs import evaluate


@pytest.mark.parametrize(('value', 'expected'), [(3, (6, [3, 3, 3])), (-2, (2, []))])
def test_either__runs_one_of_two_functions(value: int, expected: tuple) -> None:
    def double(number: tf.Tensor) -> tuple:
        with tf.control_dependencies([tf.Assert(number > 0, ['must not run'])]):
            return tf.identity(number * 2), tf.fill([number], number)

    def negate(number: tf.Tensor) -> tuple:
        with tf.control_dependencies([tf.Assert(number <= 0, ['must not run'])]):
            return tf.identity(-number), tf.fill([0], number)

    number = tf.placeholder_with_default(tf.constant(value), [])
    found, copies = evaluate(*either(number > 0, double, negate, number))
    assert (found, copies.tolist()) == expected
