"""Tests of frozen layers, of the learning rate of classifiers, and of the patterns that select variables."""

import dataclasses
import functools
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config, ConfigError
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet
from inception_v3.tpu import topology
from inception_v3.tpu.emulation import EmulatedCores
from inception_v3.weights.selection import HEAD, Patterns, scopes_of
from inception_v3.weights.sources import AVERAGE
from tests.support.graphs import plain_session
from tests.support.tiers import further

CONFIG = Config(use_tpu=False, height=107, width=107, num_classes=4, seed=1, batch_norm_decay=0.5)
TRAIN = tf.estimator.ModeKeys.TRAIN
STEPS = 5
Values = Dict[str, np.ndarray]

pytestmark = pytest.mark.usefixtures('tiny')


def step(config: Config, images: int = 2) -> Any:
    """Builds a training step on random images, of the smallest size with an auxiliary head."""
    random = np.random.RandomState(0)
    pixels = tf.constant(random.uniform(-1, 1, [images, config.height, config.width, 3]).astype(np.float32))
    labels = tf.constant(random.randint(0, config.num_classes, images).astype(np.int32))
    return inception_model_fn(pixels, labels, TRAIN, {'config': config}).train_op


def trained(config: Config, steps: int = STEPS) -> Tuple[Values, Values]:
    """The values of all variables before and after training."""
    with tf.Graph().as_default():
        train_op = step(config)
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        with plain_session() as session:
            session.run(tf.global_variables_initializer())
            before = session.run(variables)
            for _ in range(steps):
                session.run(train_op)
            return before, session.run(variables)


def changed(before: Values, after: Values) -> set:
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize('optimizer', ['RMS', further('momentum')])
def test_frozen_variables__are_the_same_to_the_bit_after_training(optimizer: str) -> None:
    config = dataclasses.replace(CONFIG, optimizer=optimizer, weight_decay=0.1, freeze='Layer,AuxLogits')
    before, after = trained(config)
    assert {name for name in changed(before, after) if not name.startswith('Logits')} == {'global_step'}
    slots = {name for name in before if 'RMSProp' in name or 'Momentum' in name}
    assert slots and all(name.startswith('Logits/') for name in slots)
    # Evaluation with averages also reads the averages of frozen weights.
    np.testing.assert_array_equal(after[f'Layer/weights{AVERAGE}'], before['Layer/weights'])
    assert not np.array_equal(after[f'Logits/weights{AVERAGE}'], before['Logits/weights'])


def test_frozen_layers__train_like_layers_of_constants() -> None:
    """The rest of the network has the same gradients as in a step in which all layers train."""
    config = dataclasses.replace(CONFIG, optimizer='sgd', moving_average=False)
    _, free = trained(config, 1)
    _, frozen = trained(dataclasses.replace(config, freeze='Layer', freeze_batch_norm=False), 1)
    np.testing.assert_array_equal(frozen['Logits/weights'], free['Logits/weights'])
    # With the moments of the batch, moving statistics are still updated.
    np.testing.assert_array_equal(frozen['Layer/BatchNorm/moving_mean'], free['Layer/BatchNorm/moving_mean'])
    assert not np.array_equal(frozen['Layer/weights'], free['Layer/weights'])
    _, fixed = trained(dataclasses.replace(config, freeze='Layer'), 1)
    assert not np.array_equal(fixed['Logits/weights'], free['Logits/weights'])


def test_weight_decay__of_frozen_weights_is_not_in_the_loss() -> None:
    def loss(**changes: Any) -> float:
        with tf.Graph().as_default():
            config = dataclasses.replace(CONFIG, weight_decay=1.0, freeze_batch_norm=False, **changes)
            images, labels = tf.zeros([2, 107, 107, 3]), tf.zeros([2], tf.int32)
            spec = inception_model_fn(images, labels, TRAIN, {'config': config})
            weights = [v for v in tf.global_variables() if v.op.name in ('Layer/weights', 'AuxLogits/weights')]
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                decay = sum((value**2).sum() / 2 for value in session.run(weights))
                return float(session.run(spec.loss)) + (decay if changes else 0.0)

    assert loss(freeze='Layer,AuxLogits') == pytest.approx(loss(), rel=1e-5)


def test_frozen_variables__of_reversible_blocks_stay(monkeypatch: Any) -> None:
    small = functools.partial(revnet, REVNET_38._replace(units=(2, 1), depths=(32, 48)))
    monkeypatch.setitem(NETWORKS, 'revnet38', NETWORKS['revnet38']._replace(build=small))
    frozen = 'stem,stage_1/unit_2'
    config = dataclasses.replace(CONFIG, network='revnet38', height=8, width=8, freeze=frozen, moving_average=False)
    before, after = trained(config, 2)
    of_frozen = {name for name in before if name.startswith(('RevNet/stem/', 'RevNet/stage_1/unit_2/'))}
    assert of_frozen and not changed(before, after) & of_frozen
    trains = {name for name in before if name.endswith('weights')} - of_frozen
    assert trains and trains <= changed(before, after)


def test_frozen_variables__of_emulated_cores_stay() -> None:
    tpu = {'use_tpu': True, 'tpu': 'emulated:2', 'num_shards': 2}
    config = dataclasses.replace(CONFIG, freeze='Layer', head_learning_rate=CONFIG.learning_rate / 2, **tpu)

    def on_core(core: int) -> tf.Tensor:
        with tf.control_dependencies([step(config)]):
            return tf.constant(core)

    # As Estimator does, before the step.
    tf.train.get_or_create_global_step()
    cores = EmulatedCores(topology.emulated('emulated:2'))
    with cores.in_place_of_a_tpu():
        train = cores.replicate(on_core)
    # The second core has no slot either, and so no gradient, for a frozen weight.
    slots = [v.op.name for v in (*tf.global_variables(), *tf.local_variables()) if 'RMSProp' in v.op.name]
    assert slots and not [name for name in slots if 'Layer' in name]
    variables = {variable.op.name: variable for variable in tf.global_variables()}
    session_config = tf.ConfigProto(device_count={'CPU': 3})
    session_config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Session(config=session_config) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        before = session.run(variables)
        for _ in range(2):
            session.run(train)
        after = session.run(variables)
    assert 'Logits/weights' in changed(before, after)
    assert not [name for name in changed(before, after) if name.startswith('Layer')]


@pytest.mark.parametrize('optimizer', [further('momentum'), 'RMS'])
def test_head_learning_rate__scales_the_updates_of_classifiers_alone(optimizer: str) -> None:
    # Without the decay of weights, the first step is proportional to the learning rate for each optimizer.
    config = dataclasses.replace(CONFIG, optimizer=optimizer, learning_rate=0.2, moving_average=False)
    before, same = trained(config, 1)
    _, faster = trained(dataclasses.replace(config, head_learning_rate=0.6), 1)
    assert {*same} == {*faster}
    assert faster['global_step'] == 1
    for name in (name for name in before if name.endswith(('weights', 'biases', 'beta'))):
        factor = 3.0 if 'Logits' in name else 1.0
        assert np.abs(same[name] - before[name]).max() > 1e-5, name
        np.testing.assert_allclose(
            faster[name] - before[name], factor * (same[name] - before[name]), rtol=1e-3, atol=1e-7, err_msg=name
        )


def test_head_learning_rate__works_with_a_scaled_loss_and_a_frozen_body() -> None:
    config = dataclasses.replace(CONFIG, precision='float16', head_learning_rate=0.1, freeze='Layer')
    before, after = trained(config, 2)
    assert after['global_step'] == 2
    assert {'Logits/weights', 'AuxLogits/weights'} <= changed(before, after)
    assert not [name for name in changed(before, after) if name.startswith('Layer')]


@pytest.mark.parametrize(
    ('freeze', 'message'),
    [
        ('Layer,Mixed_5b', 'no variable of the network matches Mixed_5b. There are Layer, Layer/BatchNorm, AuxL'),
        ('*', 'matches all weights of the network; none is left to train'),
        ('Layer,Logits,AuxLogits', 'matches all weights'),
    ],
)
def test_freeze__is_refused_if_it_matches_nothing_or_all(freeze: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        step(dataclasses.replace(CONFIG, freeze=freeze))


STEM = 'InceptionV3/Conv2d_1a_3x3/weights'
INNER = 'InceptionV3/Mixed_5b/Branch_0/Conv2d_0a_1x1/BatchNorm/moving_mean'
LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1/biases'
AUXILIARY = 'InceptionV3/AuxLogits/Conv2d_2b_1x1/biases'
# Variables of networks without an outer scope, and with another name for the classifier.
OTHERS = {'Logits/weights', 'ResNet50/logits/weights'}
ALL = {STEM, INNER, LOGITS, AUXILIARY, *OTHERS}


@pytest.mark.parametrize(
    ('text', 'matched'),
    [
        ('', set()),
        (HEAD, {LOGITS, AUXILIARY, *OTHERS}),
        ('logits, AUXLOGITS', {LOGITS, AUXILIARY, *OTHERS}),
        # Not the convolutions with such names inside other scopes.
        ('Conv2d_*', {STEM}),
        ('Mixed_[567]*/Branch_0', {INNER}),
        ('Mixed_5b/Branch_1', set()),
        ('InceptionV3/Mixed_5b/', {INNER}),
        ('*', ALL),
        ('*/*/*/*/*/*/*', set()),
        ('Mixed', set()),
    ],
)
def test_match__goes_by_the_outer_scopes(text: str, matched: set) -> None:
    assert {name for name in ALL if Patterns(text).match(name)} == matched
    assert Patterns('Logits,Mixed_9*, Conv2d_1a_3x3').unmatched(ALL) == ['Mixed_9*']


def test_scopes_of__are_the_outer_two_without_repetition() -> None:
    names = [STEM, INNER, 'InceptionV3/Mixed_5b/Branch_1/weights', 'Logits/weights', 'global_step']
    assert scopes_of(names) == ['InceptionV3/Conv2d_1a_3x3', 'InceptionV3/Mixed_5b', 'Logits', 'global_step']
