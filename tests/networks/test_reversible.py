"""Tests of reversible blocks against NumPy and against ordinary backpropagation in TensorFlow."""

import functools
from typing import Any, Dict, List, Set

import numpy as np
import pytest

from compat import tf
from inception_v3.networks import reversible
from inception_v3.networks.reversible import Block
from tests.support.graphs import plain_session
from tests.support.tiers import further

CHANNELS = 4
SHAPE = [2, 5, 6, CHANNELS]


def residual(name: str, x: tf.Tensor, again: bool) -> tf.Tensor:
    """Returns tanh(x A + b) A. The variable `runs` counts the calls in the forward pass, where `again` is False."""
    with tf.variable_scope(name):
        a = tf.get_variable('a', [CHANNELS, CHANNELS])
        b = tf.get_variable('b', [CHANNELS])
        runs = tf.get_variable('runs', [], initializer=tf.zeros_initializer(), trainable=False)
        kernel = tf.reshape(a, [1, 1, CHANNELS, CHANNELS])
        y = tf.nn.conv2d(tf.tanh(tf.nn.conv2d(x, kernel, 1, 'VALID') + b), kernel, 1, 'VALID')
        if again:
            return y
        with tf.control_dependencies([tf.assign_add(runs, 1.0)]):
            return tf.identity(y)


def blocks_of(count: int, residual: Any = residual) -> List[Block]:
    return [Block(*(functools.partial(residual, f'{i}/{name}') for name in 'FG')) for i in range(count)]


def drawn(seed: int, dtype: Any) -> np.ndarray:
    return np.random.RandomState(seed).uniform(-2, 2, SHAPE).astype(dtype)


class Variables:
    """The variables of a graph, initialized to values that depend only on their names."""

    def __init__(self, session: tf.Session) -> None:
        self.trainable = {v.op.name: v for v in tf.trainable_variables()}
        self.counts = [v for v in tf.global_variables() if v.op.name.endswith('runs')]
        session.run(tf.global_variables_initializer())
        self.values = {}
        for number, (name, variable) in enumerate(sorted(self.trainable.items())):
            value = np.random.RandomState(number).uniform(-1, 1, variable.shape.as_list()) * 0.5
            self.values[name] = value.astype(variable.dtype.as_numpy_dtype)
        # One call of run, because each call inspects the whole graph.
        begin = {v.initializer: self.values[name] for name, v in self.trainable.items()}
        session.run([*begin], {initializer.inputs[1]: value for initializer, value in begin.items()})


def residual_by_hand(values: Dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ values[f'{name}/a'] + values[f'{name}/b']) @ values[f'{name}/a']


@pytest.mark.parametrize('rebuild_activations', [True, False])
def test_chain__follows_the_equations_of_the_paper(rebuild_activations: bool) -> None:
    x1, x2 = drawn(0, np.float64), drawn(1, np.float64)
    with tf.Graph().as_default(), plain_session() as session:
        with tf.variable_scope('', use_resource=True, dtype=tf.float64):
            outputs = reversible.chain(blocks_of(3), tf.constant(x1), tf.constant(x2), rebuild_activations)
        variables = Variables(session)
        found = session.run(outputs)
    for i in range(3):
        x1 = x1 + residual_by_hand(variables.values, f'{i}/F', x2)
        x2 = x2 + residual_by_hand(variables.values, f'{i}/G', x1)
    np.testing.assert_allclose(found, [x1, x2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('scale', [1.0, 1000.0])
def test_inverse__of_a_hundred_blocks_is_exact_or_drifts_below_1e_5(scale: float) -> None:
    # The graph has one block, whose variables change from call to call.
    (block,) = blocks_of(1)
    with tf.Graph().as_default(), plain_session() as session:
        with tf.variable_scope('', use_resource=True, reuse=tf.AUTO_REUSE):
            x1, x2 = (tf.placeholder(tf.float32, SHAPE) for _ in range(2))
            outputs, inputs = reversible.forward(block, x1, x2), reversible.inverse(block, x1, x2)
        session.run(tf.global_variables_initializer())
        variables = tf.trainable_variables()
        x = [drawn(seed, np.float32) * np.float32(scale) for seed in (0, 1)]
        before = after = session.run([reversible.on_grid(tf.constant(each)) for each in x])
        for number, tensors in [*((n, outputs) for n in range(100)), *((n, inputs) for n in reversed(range(100)))]:
            random = np.random.RandomState(number)
            values = {v.initializer.inputs[1]: random.uniform(-0.5, 0.5, v.shape.as_list()) for v in variables}
            session.run([v.initializer for v in variables], values)
            after = session.run(tensors, {x1: after[0], x2: after[1]})
    drift = np.abs(np.subtract(after, before)).max() / np.abs(before).max()
    # Values beyond the grid's range are rounded like all float32 numbers: 400 sums with an error of 2 ** -24 each.
    assert drift == 0 if scale == 1 else 0 < drift < 400 * 2.0**-24


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_on_grid__numbers_add_without_rounding(dtype: Any) -> None:
    x = np.random.RandomState(0).uniform(-31, 31, [2, 10000]).astype(dtype)
    with tf.Session() as session:
        points = tf.constant(x)
        grid = reversible.on_grid(points)
        a, b = session.run(grid)
        # The gradient of rounding to the grid is the identity.
        np.testing.assert_array_equal(session.run(tf.gradients(grid, points, points)[0]), x)
    step = 2.0**-18 if dtype is np.float32 else 2.0**-47
    assert np.abs([a, b] - x).max() <= step / 2
    np.testing.assert_array_equal((a + b) - b, a)
    assert ((x[0] + x[1]) - x[1] != x[0]).any()


def gradients(rebuild_activations: bool, dtype: Any, count: int = 4) -> Dict[str, np.ndarray]:
    """Returns the gradients by all variables, x1 and x2 of a loss that treats y1 and y2 differently.

    Asserts that each residual function ran once in the forward pass.
    """
    with tf.Graph().as_default(), plain_session() as session:
        with tf.variable_scope('', use_resource=True, dtype=tf.as_dtype(dtype)):
            x1, x2 = tf.constant(drawn(0, dtype)), tf.constant(drawn(1, dtype))
            y1, y2 = reversible.chain(blocks_of(count), x1, x2, rebuild_activations)
            loss = tf.reduce_sum(tf.sin(y1)) + 2 * tf.reduce_sum(tf.cos(y2))
        variables = Variables(session)
        targets = {**variables.trainable, 'x1': x1, 'x2': x2}
        found = dict(zip(targets, session.run(tf.gradients(loss, list(targets.values())))))
        assert len(found) == 4 * count + 2
        assert set(session.run(variables.counts)) == {1}
        return found


@pytest.mark.parametrize(('dtype', 'tolerance'), [(np.float64, 1e-10), further(np.float32, 1e-5)])
def test_gradients__equal_those_of_ordinary_backpropagation(dtype: Any, tolerance: float) -> None:
    rebuilt, kept = gradients(True, dtype), gradients(False, dtype)
    for name, value in kept.items():
        assert np.abs(value).max() > 0
        np.testing.assert_allclose(rebuilt[name], value, rtol=0, atol=tolerance * np.abs(value).max(), err_msg=name)


def test_rebuild_activations__waits_for_the_gradients_of_the_next_block() -> None:
    seen: List[tf.Tensor] = []

    def noted(name: str, x: tf.Tensor, again: bool) -> tf.Tensor:
        if again:
            seen.append(x)
        return residual(name, x, again)

    with tf.Graph().as_default(), tf.variable_scope('', use_resource=True):
        x = tf.constant(drawn(0, np.float32))
        outputs = reversible.chain(blocks_of(3, noted), x, x)
        d_outputs = [tf.constant(drawn(seed, np.float32), name=f'd_y{seed}') for seed in (1, 2)]
        weights = {v.op.name: v for v in tf.trainable_variables()}
        found = tf.gradients(outputs, [x, *weights.values()], d_outputs)
        d_weights = dict(zip(weights, found[1:]))
        assert len(seen) == 6

        def ancestors(operation: tf.Operation) -> Set[tf.Operation]:
            found, left = set(), [operation]
            while left:
                for near in [*(t.op for t in left[-1].inputs), *left.pop().control_inputs]:
                    if near not in found:
                        found.add(near)
                        left.append(near)
            return found

        for rebuilt_from in seen:
            assert {tensor.op for tensor in d_outputs} <= ancestors(rebuilt_from.op)
        # A block is rebuilt after all gradients of the next block have been computed.
        for block, rebuilt_from in ((2, seen[2]), (1, seen[4])):
            behind = {d_weight.op for name, d_weight in d_weights.items() if name.startswith(f'{block}/')}
            assert len(behind) == 4 and behind <= ancestors(rebuilt_from.op)
