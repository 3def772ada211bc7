"""Tests of three steps of each optimizer against its equations in NumPy."""

from typing import Callable, List

import numpy as np
import pytest
from tensorflow.python.tpu import tpu_function

from compat import tf
from inception_v3.config import Config
from inception_v3.optimizers import make_optimizer
from tests.support.graphs import evaluate

RATE = 0.5
START = np.array([1.0, -2.0])
# The gradients of the three steps.
GRADIENTS = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6]])


def sgd() -> List[np.ndarray]:
    weights, after = START, []
    for gradient in GRADIENTS:
        weights = weights - RATE * gradient
        after.append(weights)
    return after


def momentum() -> List[np.ndarray]:
    weights, velocity, after = START, np.zeros(2), []
    for gradient in GRADIENTS:
        velocity = 0.9 * velocity + gradient
        weights = weights - RATE * velocity
        after.append(weights)
    return after


def rmsprop() -> List[np.ndarray]:
    # In TensorFlow, the mean square starts at 1, and epsilon is added before the square root.
    weights, velocity, mean_square, after = START, np.zeros(2), np.ones(2), []
    for gradient in GRADIENTS:
        mean_square = 0.9 * mean_square + 0.1 * gradient**2
        velocity = 0.9 * velocity + RATE * gradient / np.sqrt(mean_square + 1.0)
        weights = weights - velocity
        after.append(weights)
    return after


@pytest.mark.parametrize(('name', 'by_hand'), [('sgd', sgd), ('momentum', momentum), ('RMS', rmsprop)])
def test_optimizer__three_steps_agree_with_the_equations(name: str, by_hand: Callable[[], List[np.ndarray]]) -> None:
    weights = tf.get_variable('w', initializer=START.astype(np.float32), use_resource=True)
    gradient = tf.placeholder(tf.float32, [2])
    optimizer = make_optimizer(tf.constant(RATE), Config(use_tpu=False, optimizer=name))
    step = optimizer.apply_gradients([(gradient, weights)])
    after = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value in GRADIENTS:
            session.run(step, {gradient: value})
            after.append(session.run(weights))
    np.testing.assert_allclose(after, by_hand(), rtol=1e-6)


@pytest.mark.parametrize('name', ['sgd', 'momentum', 'RMS'])
def test_cross_shard_optimizer__sums_gradients_of_the_mean_loss(name: str) -> None:
    # Each of 4 cores takes the gradient of a quarter of its loss; the sum over the cores is the gradient of the mean.
    weights = tf.get_variable('w', initializer=START.astype(np.float32), use_resource=True)
    with tpu_function.tpu_shard_context(4):
        optimizer = make_optimizer(tf.constant(RATE), Config(optimizer=name))
        ((gradient, _),) = optimizer.compute_gradients(tf.reduce_sum(8.0 * weights), [weights])
        # Evaluated before the graph has the sum, which has no kernel for a CPU.
        assert [*evaluate(gradient)] == [2.0, 2.0]
        optimizer.apply_gradients([(gradient, weights)])
    sums = [op for op in tf.get_default_graph().get_operations() if op.type == 'CrossReplicaSum']
    assert len(sums) == 1
    # The wrapped optimizer is the configured one.
    slots = {'sgd': [], 'momentum': ['momentum'], 'RMS': ['momentum', 'rms']}[name]
    assert optimizer.get_slot_names() == slots
