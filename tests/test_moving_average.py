"""Tests of the moving averages of the weights: values, names, and the checkpoint from which they are loaded."""

from typing import Any

import numpy as np
import pytest

from compat import tf
from compat.errors import CheckpointError
from inception_v3 import moving_average
from inception_v3.moving_average import LoadEMAHook

NAME = 'w/ExponentialMovingAverage'


def test_moving_average__follows_the_equation_with_the_step_as_number_of_updates() -> None:
    values = [2.0, 3.0, -1.0, 5.0]
    weight = tf.get_variable('w', initializer=1.0, use_resource=True)
    with tf.variable_scope('', use_resource=True):
        step = tf.train.create_global_step()
    feed = tf.placeholder(tf.float32, [])
    with tf.control_dependencies([weight.assign(feed), step.assign_add(1)]):
        number = tf.identity(step)
    with tf.control_dependencies([number]):
        update = moving_average.update_averages(0.3, number)
    average = {v.op.name: v for v in tf.global_variables()}[NAME]
    expected, results = 1.0, []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for count, value in enumerate(values, 1):
            session.run(update, {feed: value})
            decay = min(0.3, (1 + count) / (10 + count))
            expected -= (1 - decay) * (expected - value)
            results.append((session.run(average), expected))
    np.testing.assert_allclose(*zip(*results), rtol=1e-6)
    # In the first steps the decay is below its limit of 0.3; in the last steps it equals the limit.
    assert (1 + 1) / (10 + 1) < 0.3 < (1 + 4) / (10 + 4)


def test_moving_average__covers_trainable_and_collected_variables() -> None:
    trainable = tf.get_variable('trainable', [2])
    tf.get_variable('statistic', [2], trainable=False)
    collections = [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MOVING_AVERAGE_VARIABLES]
    extra = tf.get_variable('extra', [2], trainable=False, collections=collections)
    moving_average.update_averages(0.995, tf.constant(1))
    averaged = {v.op.name: v for v in tf.global_variables() if v.op.name.endswith('/ExponentialMovingAverage')}
    assert {*averaged} == {f'{v.op.name}/ExponentialMovingAverage' for v in (trainable, extra)}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        # The average begins with the weight, not with a second draw of its initializer.
        values = session.run([trainable, averaged['trainable/ExponentialMovingAverage']])
        assert values[0].any() and (values[0] == values[1]).all()
        # Nothing initializes the weight again.
        session.run(trainable.assign([3.0, 4.0]))
        session.run(averaged['extra/ExponentialMovingAverage'])
        session.run(averaged['trainable/ExponentialMovingAverage'])
        assert session.run(trainable).tolist() == [3.0, 4.0]


def test_moving_average__of_a_frozen_variable_equals_it_after_a_step() -> None:
    frozen = tf.get_variable('w', initializer=2.0, trainable=False, use_resource=True)
    update = moving_average.update_averages(0.9, tf.constant(1000), [frozen])
    average = {v.op.name: v for v in tf.global_variables()}[NAME]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(average) == 2
        # A checkpoint of training without --freeze may restore such an average.
        average.load(1.0, session)
        session.run(update)
        assert session.run([average, frozen]) == [2, 2]


@pytest.fixture
def weight() -> tf.Variable:
    """One of the two variables of the graph, which fit the checkpoints."""
    tf.get_variable('statistic', [], trainable=False)
    return tf.get_variable('w', [])


def write_checkpoint(path: str, weight: float, average: Any) -> str:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable('w', initializer=weight)
        tf.get_variable('statistic', initializer=weight)
        tf.train.get_or_create_global_step()
        if average is not None:
            tf.get_variable(NAME, initializer=average)
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, path)


def test_load_ema_hook__loads_the_averages_of_the_given_checkpoint(weight: tf.Variable, tmp_path: Any) -> None:
    older = write_checkpoint(str(tmp_path / 'model.ckpt-1'), 1.0, 10.0)
    write_checkpoint(str(tmp_path / 'model.ckpt-2'), 2.0, 20.0)
    statistic = tf.global_variables()[0]
    with tf.train.SingularMonitoredSession(hooks=[LoadEMAHook(older)]) as session:
        # The weight is loaded from its average, a variable without an average from itself.
        assert session.run([weight, statistic]) == [10.0, 1.0]


def test_load_ema_hook__of_a_model_dir_loads_its_newest_checkpoint(weight: tf.Variable, tmp_path: Any) -> None:
    with pytest.raises(CheckpointError, match='neither a checkpoint nor a folder of checkpoints'):
        LoadEMAHook(str(tmp_path)).begin()
    with pytest.raises(CheckpointError, match='mistyped: is neither a checkpoint nor a folder'):
        LoadEMAHook(str(tmp_path / 'mistyped')).begin()
    write_checkpoint(str(tmp_path / 'model.ckpt-1'), 1.0, 10.0)
    hook = LoadEMAHook(str(tmp_path))
    hook.begin()
    write_checkpoint(str(tmp_path / 'model.ckpt-2'), 2.0, 20.0)
    with tf.Session() as session:
        hook.after_create_session(session, None)
        assert session.run(weight) == 20.0


def test_load_ema_hook__of_a_second_evaluation_adds_nothing_to_the_graph(weight: tf.Variable, tmp_path: Any) -> None:
    paths = [write_checkpoint(str(tmp_path / f'model.ckpt-{step}'), 1.0, 10.0 * step) for step in (1, 2)]
    sizes, values = [], []
    with tf.Session() as session:
        for path in paths:
            hook = LoadEMAHook(path)
            hook.begin()
            sizes.append(len(tf.get_default_graph().get_operations()))
            hook.after_create_session(session, None)
            values.append(session.run(weight))
    assert values == [10.0, 20.0]
    assert sizes[0] == sizes[1]
    # TensorFlow leaves out a collection that it cannot write, with a warning.
    assert {*tf.get_default_graph().get_all_collection_keys()} == {*tf.train.export_meta_graph().collection_def}


def test_load_ema_hook__refuses_a_checkpoint_without_averages(weight: tf.Variable, tmp_path: Any) -> None:
    checkpoint = write_checkpoint(str(tmp_path / 'model.ckpt-1'), 1.0, None)
    with pytest.raises(CheckpointError, match=r'model\.ckpt-1: has no moving averages .* --moving_average=False'):
        LoadEMAHook(checkpoint).begin()
