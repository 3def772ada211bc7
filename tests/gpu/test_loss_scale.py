"""Tests of loss scaling against its rules in NumPy, and of its state in checkpoints."""

from typing import Any, Dict, List, NamedTuple

import numpy as np
import pytest

from compat import tf
from inception_v3 import loss_scale
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn
from inception_v3.optimizers import make_optimizer
from inception_v3.run.hooks.saving import CheckpointFitsHook
from inception_v3.run.hooks.watchers import SkippedSteps, Step, StepHook
from tests.support.checkpoints import saved_variables

RATE = 0.5
METHOD = tf.AggregationMethod.ADD_N
# Gradients of the loss for two weights; float32 holds 3e38, so that a scale of 2 or more makes 2e38 overflow.
GRADIENTS = [[0.1, -0.2], [2e38, 0.4], [0.5, 2e38], [0.3, 0.1], [-0.5, 0.6], [0.2, np.inf], [0.7, 0.8], [0.1, 0.1]]


class Expected(NamedTuple):
    """The state after a step."""

    weights: List[float]
    scale: float
    steady: int
    skipped: int
    step: int


def by_hand(growth_steps: int) -> List[Expected]:
    """Momentum with a rate of 0.5, in NumPy; a step whose scaled gradients overflow float32 changes nothing."""
    weights, velocity, after = np.array([1.0, -2.0]), np.zeros(2), []
    scale, steady, skipped = 64.0, 0, 0
    for number, gradient in enumerate(GRADIENTS):
        if (np.abs(np.array(gradient) * scale) < np.finfo(np.float32).max).all():
            velocity = 0.9 * velocity + gradient
            weights = weights - RATE * velocity
            steady += 1
            if steady == growth_steps:
                scale, steady = scale * 2, 0
        else:
            scale, steady, skipped = scale / 2, 0, skipped + 1
        after.append(Expected([*weights], scale, steady, skipped, number + 1))
    return after


@pytest.mark.parametrize('growth_steps', [2, 3])
def test_minimize__skips_overflows_and_moves_the_scale_as_in_numpy(monkeypatch: Any, growth_steps: int) -> None:
    monkeypatch.setattr(loss_scale, 'FIRST_SCALE', 64.0)
    monkeypatch.setattr(loss_scale, 'GROWTH_STEPS', growth_steps)
    weights = tf.get_variable('w', initializer=np.float32([1, -2]), use_resource=True)
    gradient = tf.placeholder(tf.float32, [2])
    global_step = tf.train.create_global_step()
    optimizer = make_optimizer(tf.constant(RATE), Config(use_tpu=False, optimizer='momentum'))
    train = loss_scale.minimize(optimizer, tf.reduce_sum(weights * gradient), global_step, METHOD)
    state = loss_scale.state()
    found = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value in GRADIENTS:
            session.run(train, {gradient: value})
            read = session.run([weights, *state, global_step])  # type: ignore[misc]
            found.append(Expected([*read[0]], *read[1:]))
    expected = by_hand(growth_steps)
    assert [each[1:] for each in found] == [each[1:] for each in expected]
    np.testing.assert_allclose([each.weights for each in found], [each.weights for each in expected], rtol=1e-6)
    assert {each.skipped for each in expected} == {0, 1, 2, 3}


def test_minimize__keeps_a_gradient_that_is_0_in_float16() -> None:
    def moved(scaled: bool) -> float:
        with tf.Graph().as_default(), tf.Session() as session:
            weight = tf.get_variable('w', initializer=0.0, use_resource=True)
            # The gradient of the float16 copy, 2^-30, is below 2^-24, the smallest number of float16.
            loss = tf.cast(tf.cast(weight, tf.float16), tf.float32) * 2.0**-30
            optimizer, global_step = tf.train.GradientDescentOptimizer(1.0), tf.train.create_global_step()
            train = (
                loss_scale.minimize(optimizer, loss, global_step, METHOD)
                if scaled
                else optimizer.minimize(loss, global_step)
            )
            session.run(tf.global_variables_initializer())
            session.run(train)
            return -float(session.run(weight))

    assert (moved(scaled=False), moved(scaled=True)) == (0.0, 2.0**-30)


def test_minimize__applies_an_overflow_at_scale_1_and_has_an_upper_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(loss_scale, 'GROWTH_STEPS', 1)
    weight = tf.get_variable('w', initializer=1.0, use_resource=True)
    gradient = tf.placeholder(tf.float32, [])
    optimizer, global_step = tf.train.GradientDescentOptimizer(1.0), tf.train.create_global_step()
    train = loss_scale.minimize(optimizer, weight * gradient, global_step, METHOD)
    state = loss_scale.state()
    assert state is not None
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.assign(state.scale, 2.0**23))
        scales = []
        for _ in range(3):
            session.run(train, {gradient: 0.0})
            scales.append(session.run(state.scale))
        assert scales == [2.0**24] * 3
        session.run(tf.assign(state.scale, 2.0))
        session.run(train, {gradient: np.inf})
        assert (session.run(weight), session.run(state.scale), session.run(state.skipped_steps)) == (1.0, 1.0, 1)
        session.run(train, {gradient: np.inf})
        assert not np.isfinite(session.run(weight))
        assert (session.run(state.scale), session.run(state.skipped_steps)) == (1.0, 1)


def weights_and_state(variables: Dict[str, np.ndarray]) -> Dict[str, float]:
    """The sum of the weights, and the state of loss scaling without the prefix of its names."""
    state = {name.partition('/')[2]: value for name, value in variables.items() if name.startswith('loss_scale/')}
    return {name: float(value) for name, value in {'weights': variables['Layer/weights'].sum(), **state}.items()}


@pytest.mark.program
def test_checkpoints__pass_between_precisions_and_resumption_keeps_the_scale_and_the_count(
    tmp_path: Any, one_layer: None, monkeypatch: Any, caplog: Any
) -> None:
    # Large enough for the first gradients to overflow.
    monkeypatch.setattr(loss_scale, 'FIRST_SCALE', 2.0**24)
    images = np.random.RandomState(0).uniform(-1, 1, [4, 75, 75, 3]).astype(np.float32)

    def train(step: int, precision: str) -> Dict[str, np.ndarray]:
        """Trains in a session like Estimator's, from the newest checkpoint to a step, and saves it."""
        config = Config(use_tpu=False, height=75, width=75, num_classes=11, precision=precision)
        checkpoint = tf.train.latest_checkpoint(str(tmp_path))
        hooks = [CheckpointFitsHook(checkpoint)] if checkpoint else []
        with tf.Graph().as_default():
            tf.train.create_global_step()
            spec = inception_model_fn(tf.constant(images), tf.zeros([4], tf.int32), 'train', {'config': config})
            tf.losses.add_loss(spec.loss)
            hooks += [StepHook([SkippedSteps()]), tf.train.StopAtStepHook(last_step=step)]
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, save_summaries_steps=0, log_step_count_steps=0
            ) as session:
                while not session.should_stop():
                    session.run(spec.train_op)
        return saved_variables(str(tmp_path))

    in_float32 = train(1, 'float32')
    in_float16 = train(3, 'float16')
    assert {*in_float16} - {*in_float32} == {f'loss_scale/{name}' for name in loss_scale.State._fields}
    # The state of loss scaling starts anew, and both steps are skipped: weights and optimizer stay as at step 1.
    moved = {name for name in in_float32 if not np.array_equal(in_float32[name], in_float16[name])}
    kept = {'Layer/weights', 'Layer/weights/RMSProp', 'Layer/weights/RMSProp_1', 'Logits/biases'}
    assert 'global_step' in moved and not moved & kept and kept < {*in_float32}
    state = weights_and_state(in_float16)
    assert state == {'weights': state['weights'], 'scale': 2.0**22, 'steady_steps': 0, 'skipped_steps': 2}
    skips = [message for message in caplog.messages if 'overflows float16' in message]
    assert [message.partition(':')[0] for message in skips] == ['step 2', 'step 3']
    assert 'the loss scale is now 4.1943e+06 (steps skipped so far: 2)' in skips[-1]
    # The next part of the run continues with this state.
    monkeypatch.setattr(loss_scale, 'FIRST_SCALE', 2.0)
    resumed = weights_and_state(train(4, 'float16'))
    assert resumed == {**state, 'scale': 2.0**21, 'skipped_steps': 3}
    assert {*train(5, 'float32')} == {*in_float32}


def test_saver__restores_a_checkpoint_without_the_state_of_the_scale(tmp_path: Any) -> None:
    def saved(path: str, restored: str, weight: float, with_scale: bool) -> Dict[str, float]:
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.get_variable('weight', initializer=weight, use_resource=True)
            if with_scale:
                loss_scale.minimize(tf.train.GradientDescentOptimizer(0.0), variable, tf.train.create_global_step(), 0)
            else:
                tf.train.create_global_step()
            saver = loss_scale.Saver() if with_scale else tf.train.Saver()
            saver.build() if with_scale else None
            session.run(tf.global_variables_initializer())
            if with_scale:
                session.run(tf.assign(tf.get_collection(loss_scale.VARIABLES)[0], weight))
            if restored:
                saver.restore(session, restored)
            saver.save(session, path, write_meta_graph=False)
            return {v.op.name: session.run(v) for v in tf.global_variables()}

    without, first, second = (str(tmp_path / name) for name in 'abc')
    saved(without, '', 3.0, False)
    begun = saved(first, without, 5.0, True)
    # The weight is from the checkpoint; the scale is the first scale.
    assert (begun['weight'], begun['loss_scale/scale']) == (3.0, loss_scale.FIRST_SCALE)
    saved(second, '', 7.0, True)
    again = saved(str(tmp_path / 'd'), second, 9.0, True)
    assert (again['weight'], again['loss_scale/scale']) == (7.0, 7.0)


def test_skipped_steps__are_logged_with_the_number_of_all(caplog: Any) -> None:
    watcher = SkippedSteps()
    with tf.Session() as session:
        loss_scale.minimize(
            tf.train.GradientDescentOptimizer(0.0),
            tf.get_variable('weight', initializer=1.0, use_resource=True),
            tf.train.create_global_step(),
            METHOD,
        )
        session.run(tf.global_variables_initializer())
        state = loss_scale.state()
        assert state is not None
        # Two steps that an earlier part of the run has skipped.
        session.run([tf.assign(state.scale, 8.0), tf.assign(state.skipped_steps, 2)])
        watcher.graph_built()
        watcher.session_began(session, 5, 0.0)
        watcher.step_done(session, Step(6, 0.5, 0.0))
        assert not caplog.messages
        session.run([tf.assign(state.scale, 4.0), tf.assign(state.skipped_steps, 3)])
        for number in (7, 8):
            watcher.step_done(session, Step(number, 0.5, 0.0))
    assert caplog.messages == [
        'step 7: a gradient overflows float16; its update is skipped, and the loss scale is now 4 '
        '(steps skipped so far: 3)'
    ]
    alone = SkippedSteps()
    with tf.Graph().as_default(), tf.Session() as session:
        alone.graph_built()
        alone.session_began(session, 0, 0.0)
        alone.step_done(session, Step(1, 0.5, 0.0))
    assert len(caplog.messages) == 1
