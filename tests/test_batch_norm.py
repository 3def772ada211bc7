"""Tests of batch normalization against its equations."""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm, batch_norm_for
from inception_v3.config import Config

DECAY = 0.9
INPUTS = np.random.RandomState(0).normal(3.0, 2.0, [4, 5, 6, 3]).astype(np.float32)


def variables() -> Any:
    return {v.op.name: v for v in tf.global_variables()}


def run(*tensors: Any, feeds: Sequence[Dict[Any, Any]] = ({},)) -> Tuple[List[Any], np.ndarray, np.ndarray]:
    """The values of tensors in the last of several steps, and the moving mean and variance after it."""
    moving = [variables()[f'BatchNorm/moving_{name}'] for name in ('mean', 'variance')]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for feed in feeds:
            values = session.run(tensors, feed)
        mean, variance = session.run(moving)
        return values, mean, variance


@pytest.mark.parametrize('update_in_place', [True, False])
def test_training__normalizes_by_the_batch_and_updates_moving_statistics(update_in_place: bool) -> None:
    outputs = BatchNorm(is_training=True, decay=DECAY, update_in_place=update_in_place)(tf.constant(INPUTS))
    collected = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(collected) == (0 if update_in_place else 2)
    mean, variance = INPUTS.mean((0, 1, 2)), INPUTS.var((0, 1, 2))
    count = INPUTS[..., 0].size
    (values, _), moving_mean, moving_variance = run(outputs, collected)
    np.testing.assert_allclose(values, (INPUTS - mean) / np.sqrt(variance + 1e-3), atol=1e-5)
    np.testing.assert_allclose(moving_mean, (1 - DECAY) * mean, rtol=1e-5)
    # The moving variance uses the unbiased estimate.
    np.testing.assert_allclose(moving_variance, DECAY + (1 - DECAY) * variance * count / (count - 1), rtol=1e-5)


def test_inference__normalizes_by_moving_statistics_and_adds_the_shift() -> None:
    outputs = BatchNorm(is_training=False, decay=DECAY)(tf.constant(INPUTS))
    values = {'beta': [1.0, 2.0, 3.0], 'moving_mean': [0.5, 3.0, -1.0], 'moving_variance': [4.0, 0.25, 1.0]}
    with tf.Session() as session:
        for name, value in values.items():
            variables()[f'BatchNorm/{name}'].load(value, session)
        result = session.run(outputs)
    expected = (INPUTS - values['moving_mean']) / np.sqrt(np.add(values['moving_variance'], 1e-3)) + values['beta']
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('groups', [None, [[0]]])
@pytest.mark.parametrize(('dtype', 'rounding'), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_scale__multiplies_and_has_the_gradient_of_the_paper(groups: Any, dtype: Any, rounding: float) -> None:
    scale, epsilon = np.float32([0.5, -2.0, 3.0]), 0.1
    x = tf.constant(INPUTS, dtype)
    with tf.variable_scope('', dtype=tf.as_dtype(dtype)):
        outputs = BatchNorm(is_training=True, decay=DECAY, synchronized_over=groups)(
            x, tf.constant_initializer(scale), epsilon
        )
    weights = np.random.RandomState(1).normal(size=INPUTS.shape).astype(dtype)
    gamma, beta = (variables()[f'BatchNorm/{name}'] for name in ('gamma', 'beta'))
    (values, d_x, d_gamma, d_beta), *_ = run(outputs, *tf.gradients(tf.reduce_sum(outputs * weights), [x, gamma, beta]))
    assert {each.dtype for each in (values, d_x, d_gamma, d_beta)} == {np.dtype(dtype)}
    inputs = INPUTS.astype(np.float64)
    inverse = 1 / np.sqrt(inputs.var((0, 1, 2)) + epsilon)
    normalized = (inputs - inputs.mean((0, 1, 2))) * inverse
    np.testing.assert_allclose(values, normalized * scale, atol=rounding)
    # Ioffe & Szegedy, section 3.
    tolerance = 10 * rounding
    np.testing.assert_allclose(d_gamma, (weights * normalized).sum((0, 1, 2)), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(d_beta, weights.sum((0, 1, 2)), rtol=tolerance, atol=tolerance)
    means = weights.mean((0, 1, 2)), (weights * normalized).mean((0, 1, 2))
    np.testing.assert_allclose(d_x, scale * inverse * (weights - means[0] - normalized * means[1]), atol=tolerance)


def test_bfloat16__has_float32_moments() -> None:
    # 4,096 ones and a 100: in bfloat16, the running sum would stay at 256.
    inputs = np.concatenate([np.ones([4096], np.float32), [100.0]]).reshape([1, 1, -1, 1])
    outputs = BatchNorm(is_training=True, decay=DECAY)(tf.constant(inputs, tf.bfloat16))
    assert outputs.dtype == tf.bfloat16
    _, moving_mean, _ = run(outputs)
    assert moving_mean[0] == pytest.approx((1 - DECAY) * inputs.mean(), rel=1e-5)


def test_batch_norm_decay__equals_eight_steps_of_one_device() -> None:
    # Only one of eight cores' statistics are kept: 0.9997^8 covers as many training images as 0.9997 on one device.
    assert Config().batch_norm_decay == pytest.approx(0.9997**8, abs=5e-6)


def moving_after(values: np.ndarray, decay: float) -> Tuple[float, float]:
    """Returns the moving mean and variance after one training step per row of `values`, from the equations."""
    mean, variance = 0.0, 1.0
    for row in values:
        mean = decay * mean + (1 - decay) * row.mean()
        variance = decay * variance + (1 - decay) * row.var(ddof=1)
    return mean, variance


def test_moving_statistics__follow_the_recurrence_over_many_steps() -> None:
    rows = np.random.RandomState(1).normal(2.0, 3.0, [20, 16]).astype(np.float32)
    row = tf.placeholder(tf.float32, [16])
    # From the second step on, the moments are computed from differences from the moving mean.
    outputs = BatchNorm(is_training=True, decay=DECAY, synchronized_over=[[0]])(tf.reshape(row, [1, 4, 4, 1]))
    _, *result = run(outputs, feeds=[{row: values} for values in rows])
    np.testing.assert_allclose(np.squeeze(result), moving_after(rows.astype(np.float64), DECAY), rtol=1e-4)


def test_moments__of_many_values_are_accurate_to_float32() -> None:
    rows = np.maximum(np.random.RandomState(0).normal(0.3, 1.5, [16, 37, 37, 4]), -0.2)
    weights = np.random.RandomState(1).normal(size=rows.shape)

    def outputs_and_gradients(dtype: tf.DType) -> Any:
        with tf.Graph().as_default(), tf.Session() as session:
            x, w = tf.constant(rows, dtype), tf.constant(weights, dtype)
            if dtype == tf.float32:
                outputs = BatchNorm(is_training=True, decay=DECAY, synchronized_over=[[0]])(x)
            else:
                mean, variance = tf.nn.moments(x, [0, 1, 2])
                outputs = (x - mean) / tf.sqrt(variance + 1e-3)
            session.run(tf.global_variables_initializer())
            return session.run([outputs, tf.gradients(tf.reduce_sum(outputs**2 * w), x)[0]])

    exact = outputs_and_gradients(tf.float64)
    for found, expected in zip(outputs_and_gradients(tf.float32), exact):
        # A single sum over all three axes has a relative error of 1e-4.
        np.testing.assert_allclose(found, expected, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize('groups', [None, [[0]]])
def test_moments__of_a_constant_channel_are_finite(groups: Any) -> None:
    # The square of 1000.1 is rounded to 24 bits, so the difference of the squares may be negative.
    inputs = np.full([8, 7, 7, 2], 1000.1, np.float32)
    outputs = BatchNorm(is_training=True, decay=0.0, synchronized_over=groups)(tf.constant(inputs), epsilon=1e-12)
    (values,), _, moving_variance = run(outputs)
    assert np.isfinite(values).all() and np.isfinite(moving_variance).all() and (moving_variance >= 0).all()


def test_moments__of_a_single_value_have_no_correction() -> None:
    outputs = BatchNorm(is_training=True, decay=0.5, synchronized_over=[[0]])(tf.constant([[[[4.0]]]]))
    (values,), *moved = run(outputs)
    assert values.tolist() == [[[[0.0]]]]
    np.testing.assert_array_equal(moved, [[2.0], [0.5]])


@pytest.mark.parametrize(
    ('kind', 'size', 'groups'),
    [
        ('local', 0, []),
        ('averaged', 0, [[[0, 1, 2, 3]]]),
        ('synchronized', 0, [[[0, 1, 2, 3]]]),
        ('synchronized', 2, [[[0, 1], [2, 3]]]),
    ],
)
def test_batch_norm_for__sums_over_the_cores_of_the_flags(kind: str, size: int, groups: Any) -> None:
    config = Config(num_shards=4, batch_norm=kind, batch_norm_group_size=size)
    batch_norm_for(config, True)(tf.constant(INPUTS))
    sums = [op for op in tf.get_default_graph().get_operations() if op.type == 'CrossReplicaSum']
    assert [tf.get_static_value(op.inputs[1]).tolist() for op in sums] == groups
