"""The Keras layer with the moments of all cores, against Keras' own on one device."""

from typing import Any, List

import numpy as np
import pytest

from compat import tf
from inception_v3.networks.keras_batch_norm import SynchronizedBatchNormalization
from tests.support.emulation import on_cores

CORES = 4
ROWS = (3 * np.random.RandomState(0).standard_normal([32, 5]) + np.repeat(np.arange(CORES), 8)[:, None]).astype('f4')
# Images, with means far from 0.
IMAGES = (1000 + np.random.RandomState(2).standard_normal([8, 3, 2, 5])).astype('f4')


def outputs_and_gradient(layer: Any, inputs: tf.Tensor, factors: tf.Tensor) -> List[tf.Tensor]:
    outputs = layer(inputs, training=True)
    return [outputs, tf.gradients(tf.reduce_sum(outputs * factors), inputs)[0]]


def step_of_core(inputs: tf.Tensor, factors: tf.Tensor) -> List[tf.Tensor]:
    layer = SynchronizedBatchNormalization()
    tensors = outputs_and_gradient(layer, inputs, factors)
    with tf.control_dependencies(layer.updates):
        return [*map(tf.identity, tensors), layer.moving_mean.read_value(), layer.moving_variance.read_value()]


def factors_of(inputs: np.ndarray) -> np.ndarray:
    return np.random.RandomState(1).standard_normal(inputs.shape).astype('f4')


def on_one_device(inputs: np.ndarray) -> List[np.ndarray]:
    with tf.Graph().as_default(), tf.Session() as session:
        layer = tf.keras.layers.BatchNormalization(fused=False)
        tensors = outputs_and_gradient(layer, tf.constant(inputs), tf.constant(factors_of(inputs)))
        session.run(tf.global_variables_initializer())
        session.run(layer.updates)
        return session.run([*tensors, layer.moving_mean, layer.moving_variance])


@pytest.mark.parametrize('inputs', [ROWS, IMAGES], ids=['rows', 'images far from 0'])
def test_cores__compute_what_keras_computes_on_one_device(inputs: np.ndarray) -> None:
    shares, factors = (tf.split(tf.constant(values), CORES) for values in (inputs, factors_of(inputs)))
    found, _ = on_cores(CORES, lambda core: step_of_core(shares[core], factors[core]))
    outputs, gradient, *statistics = on_one_device(inputs)
    # At 1,000 the means themselves are rounded to 6e-5.
    limit = 1e-5 if inputs is ROWS else 1e-3
    np.testing.assert_allclose(np.concatenate([of_core[0] for of_core in found]), outputs, atol=limit)
    np.testing.assert_allclose(np.concatenate([of_core[1] for of_core in found]), gradient, atol=limit)
    for of_core in found:
        np.testing.assert_allclose(of_core[2:], statistics, rtol=1e-6, atol=1e-6)


def test_one_device__is_the_layer_that_it_replaces() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        step = step_of_core(tf.constant(ROWS), tf.constant(factors_of(ROWS)))
        session.run(tf.global_variables_initializer())
        for value, expected in zip(session.run(step), on_one_device(ROWS)):
            np.testing.assert_array_equal(value, expected)


def test_model__keeps_arguments_names_and_weights() -> None:
    names, outputs = [], []
    for kind in (tf.keras.layers.BatchNormalization, SynchronizedBatchNormalization):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.keras.backend.set_session(session)
            layer = kind(momentum=0.9, epsilon=0.01, name='norm')
            again = kind.from_config(layer.get_config())
            assert (again.momentum, again.epsilon) == (0.9, 0.01)
            for each in (layer, again):
                dense = tf.keras.layers.Dense(3, input_shape=(5,), kernel_initializer='ones')
                model = tf.keras.Sequential([dense, each])
                model.set_weights([np.full(old.shape, 0.5 + place) for place, old in enumerate(model.get_weights())])
                outputs.append(session.run(model(tf.constant(ROWS), training=False)))
                names.append([weight.name for weight in model.weights])
    assert len(names[0]) == 6 and all(each == names[0] for each in names[::2])
    for each in outputs[1:]:
        np.testing.assert_allclose(each, outputs[0], rtol=1e-6)


def test_fused__is_refused() -> None:
    with pytest.raises(ValueError, match='of one core only'):
        SynchronizedBatchNormalization(fused=True)
    with pytest.raises(ValueError, match='over all rows of all cores'):
        SynchronizedBatchNormalization(virtual_batch_size=2)
