"""The Keras layers and models of RevNets, against NumPy and against ordinary backpropagation.

They run eagerly and in a `tf.function` in a separate process, because eager execution cannot be switched off again; in
the graph of an Estimator, they run here.
"""

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.config import Config
from inception_v3.networks import layers
from inception_v3.networks.keras_revnet import Residual, RevNet
from inception_v3.networks.revnet import REVNET_38, revnet
from inception_v3.seeding import session_config
from tests.support.checkpoints import saved_variables

# A stage that is reversible, and one whose first unit is not.
SHORT = REVNET_38._replace(units=(2, 2), depths=(32, 48))
RANDOM = np.random.RandomState(0)
IMAGES = RANDOM.uniform(-1, 1, [4, 8, 8, 3])
X, DY = RANDOM.normal(size=[2, 2, 3, 3, 32])


def norm(training: bool) -> BatchNorm:
    return BatchNorm(training, 0.9)


def randomize(variables: List[Any]) -> None:
    random = np.random.RandomState(1)
    for variable in variables:
        variable.assign(random.uniform(0.5, 1.5) * random.normal(0.1, 0.2, variable.shape.as_list()))


def distance(found: List[Any], expected: List[Any]) -> float:
    """The largest difference, relative to the largest value of each tensor."""
    assert len(found) == len(expected) and all(np.abs(np.array(each)).max() > 0 for each in expected)
    return max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(map(np.array, found), map(np.array, expected))
    )


def half_by_hand(x: np.ndarray, weights: Dict[str, np.ndarray], scope: str, training: bool = True) -> np.ndarray:
    """A residual function: twice batch normalization, ReLU and a 3 x 3 convolution."""
    for number in (1, 2):
        of = {name.split('/')[-1]: w for name, w in weights.items() if f'/{scope}/conv_{number}/' in f'/{name}'}
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        if not training:
            mean, variance = of['moving_mean'], of['moving_variance']
        x = (x - mean) / np.sqrt(variance + 1e-3) * of['gamma'] + of['beta']
        x = np.pad(np.maximum(x, 0), [(0, 0), (1, 1), (1, 1), (0, 0)], mode='constant')
        windows = [[x[:, i : i + 3, j : j + 3] @ of['weights'][i, j] for j in range(3)] for i in range(3)]
        x = sum(map(sum, windows))
    return x


def observe_residual() -> Dict[str, float]:
    layer = Residual(32, norm)
    x, dy = tf.constant(X), tf.constant(DY)
    layer(x, training=True)
    randomize(layer.trainable_variables)
    with tf.GradientTape() as tape:
        tape.watch(x)
        # Only the equations, without `chain` and without recomputation.
        with layer._own.scope(x.dtype):
            block = layer._block(x, True)
            x1, x2 = tf.split(x, 2, axis=3)
            y1 = x1 + block.f(x2, True)
            ordinary = tf.concat([y1, x2 + block.g(y1, True)], 3)
    dx, *gradients = tape.gradient(ordinary, [x, *layer.trainable_variables], dy)
    # Training is the default; AutoGraph does not convert the layer.
    by_default = [layer(x), tf.function(lambda x: layer(x))(x)]
    y = layer(x, True)
    moving = [each.numpy() for each in layer.non_trainable_variables]
    rebuilt = layer.backward_grads(y, dy, True)
    weights = {variable.name.partition(':')[0]: variable.numpy() for variable in layer.variables}

    def by_hand(training: bool) -> np.ndarray:
        y1 = X[..., :16] + half_by_hand(X[..., 16:], weights, 'F', training)
        return np.concatenate([y1, X[..., 16:] + half_by_hand(y1, weights, 'G', training)], 3)

    return {
        'y by hand': distance([y, layer(x, training=False)], [by_hand(True), by_hand(False)]),
        'default': distance(by_default, [y, y]),
        'x': distance([rebuilt[0]], [X]),
        'gradients': distance([rebuilt[1], *rebuilt[2]], [dx, *gradients]),
        'moved again': max(np.abs(a - b.numpy()).max() for a, b in zip(moving, layer.non_trainable_variables)),
    }


def observe_published_forms() -> Dict[str, float]:
    """The published test, with the channels as the second axis, and `backward_grads` of halves."""
    x, dy = (tf.constant(np.moveaxis(each, 3, 1)) for each in (X, DY))
    block = Residual(data_format='channels_first')
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = block(x)
    dx_true = tape.gradient(y, x, output_gradients=dy)
    tensors = block.backward_grads(y, dy)
    halves = block.backward_grads(*(tf.split(each, 2, axis=block.axis) for each in (y, dy)))
    # The gradients of F come before those of G.
    assert ['F' if '/F/' in f'/{each.name}' else 'G' for each in block.trainable_variables] == 6 * ['F'] + 6 * ['G']
    last = Residual(16)
    last(X)
    for variable, value in zip(last.trainable_variables, block.trainable_variables):
        variable.assign(value)
    found = last.backward_grads(np.moveaxis(y.numpy(), 1, 3), DY)
    return {
        'dx': distance([tensors[1]], [dx_true]),
        'x': distance([tensors[0]], [x]),
        'halves': distance(
            [*halves[0], *halves[1], *halves[2]], [*tf.split(x, 2, 1), *tf.split(dx_true, 2, 1), *tensors[2]]
        ),
        'channels last': distance([*found[1:2], *found[2]], [np.moveaxis(dx_true.numpy(), 1, 3), *tensors[2]]),
    }


def observe_model(compiled: bool) -> Dict[str, float]:
    def compiler(function: Any) -> Any:
        return tf.function(function, autograph=False) if compiled else function

    images, labels = tf.constant(IMAGES), tf.constant([1, 2, 3, 0])
    model = RevNet(SHORT, 5, norm)
    model(images, training=False)
    randomize(model.trainable_variables)
    logits, hidden = compiler(lambda images: model(images, training=True))(images)
    moving = [each.numpy() for each in model.non_trainable_variables]
    gradients, loss = compiler(model.compute_gradients)(hidden, labels)
    moved = max(np.abs(a - b.numpy()).max() for a, b in zip(moving, model.non_trainable_variables))
    ordinary = RevNet(SHORT, 5, norm, rebuild_activations=False)
    ordinary(images, training=False)
    for variable, value in zip(ordinary.trainable_variables, model.trainable_variables):
        variable.assign(value)
    with tf.GradientTape() as tape:
        expected_logits, _ = ordinary(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=expected_logits)
        expected_loss = tf.reduce_mean(losses)
    expected = tape.gradient(expected_loss, ordinary.trainable_variables)
    means = [each.numpy() for each in ordinary.non_trainable_variables]
    by_default, _ = compiler(lambda images: model(images))(images)
    by_compute, _ = ordinary.compute_gradients([images, *hidden[1:]], labels)
    return {
        'logits': distance([logits, by_default, loss], [expected_logits, expected_logits, expected_loss]),
        'gradients': distance(gradients, expected),
        'gradients with stored activations': distance(by_compute, expected),
        'moved again': float(moved),
        'moving statistics': distance(moving, means),
    }


def test_residual__refuses_what_does_not_fit() -> None:
    x = tf.zeros([1, 2, 2, 32])
    with pytest.raises(ValueError, match='is neither'):
        Residual(data_format='NHWC')
    with pytest.raises(ValueError, match='filters=8: x has 32 channels, 16 in each half'):
        Residual(8)(x)
    with pytest.raises(ValueError, match='Compute y with it first'):
        Residual().backward_grads(x, x)
    with pytest.raises(TypeError, match='x follows from y'):
        Residual().backward_grads(x, x, x)


def test_residual__takes_channels_first_or_last_and_trains_by_default() -> None:
    x, dy = (tf.constant(each, tf.float32) for each in (X, DY))
    # `filters` counts both halves together with channels last, and one half with channels first.
    last, first = Residual(32), Residual(16, data_format='channels_first')
    y = last(x)
    swapped, d_swapped = (tf.transpose(each, [0, 3, 1, 2]) for each in (x, dy))
    of_first = first(swapped)
    assert (last.axis, first.axis, of_first.shape.as_list()) == (3, 1, [2, 32, 3, 3])
    trained, evaluated = last(x, training=True), last(x, training=False)
    again, dx, gradients = last.backward_grads(y, dy)
    same = first.backward_grads(of_first, d_swapped)
    of_halves = first.backward_grads(*(tf.split(each, 2, axis=1) for each in (of_first, d_swapped)))[1]
    expected = tf.gradients(trained, [x, *last.trainable_variables], dy)
    copies = [a.assign(b) for a, b in zip(first.trainable_variables, last.trainable_variables)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(copies)
        found, of_training, of_evaluation = session.run([y, trained, evaluated])
        np.testing.assert_array_equal(found, of_training)
        assert np.abs(found - of_evaluation).max() > 0.1
        pairs = [(of_first, np.moveaxis(found, 3, 1)), (again, x), (tf.concat(of_halves, 1), same[1])]
        pairs += [*zip([dx, *gradients], expected), *zip(same[2], gradients)]
        pairs += [(result, tf.transpose(own, [0, 3, 1, 2])) for result, own in zip(same, (again, dx))]
        for a, b in session.run([[tf.convert_to_tensor(each) for each in pair] for pair in pairs]):
            np.testing.assert_allclose(a, b, atol=1e-3 * np.abs(b).max())


def test_model__trains_by_default(autograph: None) -> None:
    model = RevNet(SHORT._replace(units=(1,), depths=(32,)), 5)
    labels = tf.constant([1, 2, 3, 0])
    logits, hidden = model(tf.constant(IMAGES, tf.float32))
    _, loss = model.compute_gradients(hidden, labels)
    trained, evaluated = (model(hidden[0], training=training)[0] for training in (True, False))
    of_logits = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run([logits, trained, evaluated, loss, of_logits])
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0.1
    np.testing.assert_allclose(found[3], found[4], rtol=1e-5)


def published_model_fn(features: Any, labels: Any, mode: str, params: Dict[str, Any]) -> tf.estimator.EstimatorSpec:
    """The published model function, with the step that it leaves out. Momentum 0 keeps the gradients as they are."""
    model = RevNet(params['hyperparameters'])
    optimizer = tf.train.MomentumOptimizer(0.1, 0.0)
    _, saved_hidden = model(features, training=True)
    gradients, loss = model.compute_gradients(saved_hidden, labels, training=True)
    with tf.control_dependencies(model.get_updates_for(features)):
        pairs = zip(gradients, model.trainable_variables)
        train_op = optimizer.apply_gradients(pairs, global_step=tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def program_model_fn(features: Any, labels: Any, mode: str, params: Dict[str, Any]) -> tf.estimator.EstimatorSpec:
    """The same step for the program's network, by ordinary backpropagation."""
    with tf.variable_scope('', use_resource=True):
        logits, _ = revnet(
            params['hyperparameters'],
            features,
            10,
            True,
            layers.conv2d,
            BatchNorm(is_training=True, decay=0.99),
            rebuild_activations=False,
        )
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = tf.train.MomentumOptimizer(0.1, 0.0)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


@pytest.mark.both
@pytest.mark.program
def test_estimator__two_steps_have_the_gradients_and_statistics_of_the_program(tmp_path: Any) -> None:
    def train(model_fn: Any, folder: str, steps: int) -> None:
        images = IMAGES.astype(np.float32)
        run_config = tf.estimator.RunConfig(folder, session_config=session_config(Config(use_tpu=False)))
        estimator = tf.estimator.Estimator(
            model_fn, config=run_config, params={'hyperparameters': SHORT._replace(units=(1, 2))}
        )
        estimator.train(lambda: tf.data.Dataset.from_tensors((images, [1, 2, 3, 0])).repeat(), steps=steps)

    folders = str(tmp_path / 'program'), str(tmp_path / 'published')
    train(program_model_fn, folders[0], 1)
    shutil.copytree(folders[0], folders[1])
    for model_fn, folder in zip((program_model_fn, published_model_fn), folders):
        train(model_fn, folder, 2)
    before, expected, found = (
        saved_variables(os.path.join(folder, f'model.ckpt-{step}'))
        for folder, step in ((folders[0], 1), (folders[0], 3), (folders[1], 3))
    )
    assert {*found} == {*expected}
    for name, value in expected.items():
        assert not np.array_equal(value, before[name]), name
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=name)


@pytest.mark.both
@pytest.mark.program
def test_gradients__equal_those_of_a_tape_over_the_equations() -> None:
    command = [sys.executable, '-W', 'ignore', '-m', 'tests.networks.test_keras_revnet']
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 4
    for case, distances in found.items():
        for name, value in distances.items():
            assert value <= (0 if name == 'moved again' else 1e-12), (case, name, value)


if __name__ == '__main__':
    tf.enable_eager_execution()
    tf.keras.backend.set_floatx('float64')
    cases = {
        'residual': observe_residual(),
        'published forms': observe_published_forms(),
        'model': observe_model(False),
        'compiled model': observe_model(True),
    }
    print(json.dumps(cases))
