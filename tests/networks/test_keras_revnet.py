"""The Keras layers and models of RevNets, against NumPy and against ordinary backpropagation.

They run eagerly and in a `tf.function`, in a process of its own: eager execution cannot be switched off again.
"""

import json
import subprocess
import sys
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks.keras_revnet import Residual, RevNet
from inception_v3.networks.revnet import REVNET_38

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
        # Neither `chain` nor a recomputation: the equations by themselves.
        with layer._own.scope(x.dtype):
            block = layer._block(x, True)
            x1, x2 = tf.split(x, 2, axis=3)
            y1 = x1 + block.f(x2, True)
            ordinary = tf.concat([y1, x2 + block.g(y1, True)], 3)
    dx, *gradients = tape.gradient(ordinary, [x, *layer.trainable_variables], dy)
    # In training by default; autograph leaves the layer alone.
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


@pytest.mark.both
@pytest.mark.program
def test_gradients__equal_those_of_a_tape_over_the_equations() -> None:
    command = [sys.executable, '-W', 'ignore', '-m', 'tests.networks.test_keras_revnet']
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 3
    for case, distances in found.items():
        for name, value in distances.items():
            assert value <= (0 if name == 'moved again' else 1e-12), (case, name, value)


if __name__ == '__main__':
    tf.enable_eager_execution()
    tf.keras.backend.set_floatx('float64')
    cases = {'residual': observe_residual(), 'model': observe_model(False), 'compiled model': observe_model(True)}
    print(json.dumps(cases))
