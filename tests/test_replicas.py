"""Tests of operations between the replicas of a step, on virtual devices of the CPU."""

import functools
from typing import Any, List

import numpy as np
import pytest

from compat import tf
from inception_v3 import distribution, loss_scale, moving_average, replicas
from inception_v3.batch_norm import BatchNorm
from inception_v3.config import Config, ConfigError
from inception_v3.input_pipeline import InputPipeline
from inception_v3.local_estimator import ReplicatedEstimator
from inception_v3.metrics import evaluation_metrics
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks import reversible
from tests.support.replicas import on_replicas, strategy_for

ALL, PAIRS = [[0, 1, 2, 3]], [[0, 1], [2, 3]]
DECAY = 0.9
# Input of each replica, [replicas, batch, height, width, channels]. Its mean differs by 1 from replica to replica.
INPUTS = np.random.RandomState(0).normal(size=[4, 4, 3, 3, 2]).astype(np.float32)
INPUTS += np.arange(4, dtype=np.float32).reshape([4, 1, 1, 1, 1])
WEIGHTS = np.random.RandomState(1).normal(size=INPUTS.shape).astype(np.float32)


def own(values: Any) -> tf.Tensor:
    """The current replica's part of values for all replicas."""
    return tf.gather(tf.constant(values), replicas.number())


@pytest.mark.parametrize('groups', [ALL, PAIRS])
def test_sums__are_over_the_own_group_and_over_the_first(groups: List[List[int]]) -> None:
    values = np.float32([[1, np.nan], [10, 1], [100, 2], [1000, 3]])
    results, _ = on_replicas(4, lambda: replicas.sums(groups, own(values)))
    for group in groups:
        for replica in group:
            np.testing.assert_array_equal(results[replica][0], values[group].sum(0))
            np.testing.assert_array_equal(results[replica][1], values[groups[0]].sum(0))


def test_sums__add_in_the_order_of_the_replicas() -> None:
    # Small numbers are lost after the large one: in pairs, the sum is 5, and in the opposite order 6.
    values = np.float32([2**24, 1, 1, 4 - 2**24])
    results, _ = on_replicas(4, lambda: [replicas.sums(ALL, own(values))[0], replicas.mean(own(values))])
    assert results == [[4, 1]] * 4
    assert not {operation.type for operation in tf.get_default_graph().get_operations()} & {'AddN', 'AccumulateNV2'}


def test_synchronized_batch_norm__equals_that_of_its_groups_batch() -> None:
    def computation() -> Any:
        x = own(INPUTS)
        outputs = BatchNorm(is_training=True, decay=DECAY, synchronized_over=PAIRS)(x)
        return [outputs, tf.gradients(tf.reduce_sum(outputs**2 * own(WEIGHTS)), x)[0]]

    results, variables = on_replicas(4, computation)
    for group in PAIRS:
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.constant(INPUTS[group].reshape([-1, 3, 3, 2]), tf.float64)
            mean, variance = tf.nn.moments(x, [0, 1, 2])
            outputs = (x - mean) / tf.sqrt(variance + 1e-3)
            loss = tf.reduce_sum(outputs**2 * WEIGHTS[group].reshape([-1, 3, 3, 2]))
            expected = session.run([outputs, tf.gradients(loss, x)[0]])
        for index, value in enumerate(expected):
            found = np.concatenate([results[replica][index] for replica in group])
            np.testing.assert_allclose(found, value, atol=1e-4 * np.abs(value).max())
    first = INPUTS[PAIRS[0]].reshape([-1, 2])
    for replica in range(4):
        # All replicas have the same statistics, so a resumed run has the same shift.
        mean, variance = (variables[f'BatchNorm/moving_{name}'][replica] for name in ('mean', 'variance'))
        np.testing.assert_allclose(mean, (1 - DECAY) * first.mean(0), atol=1e-6)
        np.testing.assert_allclose(variance, DECAY + (1 - DECAY) * first.var(0, ddof=1), rtol=1e-5)


def test_reversible_blocks__have_the_gradients_of_the_whole_batch() -> None:
    def step(x: tf.Tensor, weights: tf.Tensor, norm: Any, rebuild_activations: bool) -> List[tf.Tensor]:
        def residual(name: str, net: tf.Tensor, again: bool) -> tf.Tensor:
            with tf.variable_scope(name, use_resource=True):
                factor = tf.get_variable('factor', initializer=tf.constant([1.5, -0.5], net.dtype))
                # One replica recomputes later than the other.
                with tf.control_dependencies([net] if net.device.endswith(':1') else []):
                    return tf.nn.relu(norm(net, moves_statistics=not again)) * factor

        blocks = [reversible.Block(*(functools.partial(residual, each) for each in names)) for names in ('ab', 'cd')]
        outputs = reversible.chain(blocks, x, x[..., ::-1], rebuild_activations)
        loss = sum(tf.reduce_sum(output**2 * weights) for output in outputs)
        gradients = tf.gradients(loss, x)
        with tf.control_dependencies(gradients):
            train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        with tf.control_dependencies([train_op]):
            return [tf.identity(each) for each in gradients]

    def norm_of_whole_batch(net: tf.Tensor, moves_statistics: bool) -> tf.Tensor:
        mean, variance = tf.nn.moments(net, [0, 1, 2])
        return (net - mean) / tf.sqrt(variance + 1e-3)

    norm = BatchNorm(is_training=True, decay=DECAY, synchronized_over=[[0, 1]])
    results, variables = on_replicas(2, lambda: step(own(INPUTS), own(WEIGHTS), norm, rebuild_activations=True))
    with tf.Graph().as_default(), tf.Session() as session:
        x, weights = (tf.constant(each[:2].reshape([-1, 3, 3, 2]), tf.float64) for each in (INPUTS, WEIGHTS))
        gradients = step(x, weights, norm_of_whole_batch, rebuild_activations=False)
        factors = {factor.op.name: factor for factor in tf.trainable_variables()}
        session.run(tf.global_variables_initializer())
        gradient = session.run(gradients)[0]
        expected = session.run(factors)
    found = np.concatenate([result[0] for result in results])
    np.testing.assert_allclose(found, gradient, atol=1e-4 * np.abs(gradient).max())
    assert [*expected] == ['a/factor', 'b/factor', 'c/factor', 'd/factor']
    for name, value in expected.items():
        np.testing.assert_allclose(variables[name], [value] * 2, rtol=1e-4)


def test_averaged_and_local_batch_norm__keep_means_and_the_first_replicas() -> None:
    def computation() -> Any:
        with tf.variable_scope('averaged'):
            averaged = BatchNorm(is_training=True, decay=DECAY, averaged_over=ALL)(own(INPUTS))
        with tf.variable_scope('local'):
            return [averaged, BatchNorm(is_training=True, decay=DECAY)(own(INPUTS))]

    results, variables = on_replicas(4, computation)
    means, variances = INPUTS.mean((1, 2, 3)), INPUTS.reshape([4, -1, 2]).var(1, ddof=1)
    for replica in range(4):
        expected = (INPUTS[replica] - means[replica]) / np.sqrt(INPUTS[replica].var((0, 1, 2)) + 1e-3)
        for outputs in results[replica]:
            np.testing.assert_allclose(outputs, expected, atol=1e-4)
    for scope, mean, variance in (('averaged', means.mean(0), variances.mean(0)), ('local', means[0], variances[0])):
        found = [variables[f'{scope}/BatchNorm/moving_{name}'][0] for name in ('mean', 'variance')]
        np.testing.assert_allclose(found[0], (1 - DECAY) * mean, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found[1], DECAY + (1 - DECAY) * variance, rtol=1e-5)


@pytest.mark.parametrize('overflowing', [None, 1])
def test_loss_scale__skips_a_step_on_all_replicas_or_on_none(overflowing: Any) -> None:
    factors = np.float32([1, 3])
    if overflowing is not None:
        factors[overflowing] = np.inf

    def computation() -> tf.Operation:
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable('weight', initializer=2.0, use_resource=True)
        loss = weight * own(factors)
        train_op = loss_scale.minimize(tf.train.GradientDescentOptimizer(0.5), loss, step, tf.AggregationMethod.ADD_N)
        with tf.control_dependencies([train_op]):
            return tf.constant(0)

    _, variables = on_replicas(2, computation)
    is_skipped = overflowing is not None
    # A strategy sums gradients; Estimator divides the loss by the number of replicas.
    assert variables['weight'] == [2.0 if is_skipped else 0.0] * 2
    assert variables['loss_scale/scale'] == [loss_scale.FIRST_SCALE / (2 if is_skipped else 1)] * 2
    assert variables['loss_scale/skipped_steps'] == [int(is_skipped)] * 2
    assert variables['global_step'] == [1, 1]


def test_averages__are_those_of_all_replicas_on_the_first() -> None:
    config = Config(moving_average_decay=0.75)

    def computation() -> tf.Tensor:
        variable = tf.get_variable('weight', initializer=1.0, use_resource=True)
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        trained = optimizer.minimize(variable * own(np.float32([1, 3])))
        with tf.control_dependencies([trained]):
            averaged = moving_average.update_averages(config.moving_average_decay, tf.constant(1000))
        with tf.control_dependencies([averaged]):
            return tf.constant(0)

    _, variables = on_replicas(2, computation)
    assert variables == {'weight': [-3.0, -3.0], 'weight/ExponentialMovingAverage': [0.0]}


def test_saver__saves_the_first_copies_and_restores_all(tmp_path: Any) -> None:
    def create() -> tf.Tensor:
        tf.get_variable('weight', initializer=1.0, use_resource=True)
        tf.get_variable('statistic', initializer=2.0, use_resource=True, trainable=False, **replicas.FIRST_IS_KEPT)
        return tf.constant(0)

    strategy = strategy_for(3)
    with strategy.scope():
        strategy.extended.call_for_each_replica(create)
        copies = {variable.op.name: replicas.copies(variable) for variable in tf.global_variables()}
        changes = [copy.assign(10.0 + index) for each in copies.values() for index, copy in enumerate(each)]
        initializer, saver = replicas.initializer(), replicas.Saver()
        saver.build()
    with tf.Session(config=tf.ConfigProto(device_count={'CPU': 3})) as session:
        session.run(initializer)
        assert session.run(copies) == {'weight': [1.0] * 3, 'statistic': [2.0] * 3}
        session.run(changes)
        path = saver.save(session, str(tmp_path / 'model'))
        session.run(initializer)
        saver.restore(session, path)
        assert session.run(copies) == {'weight': [10.0] * 3, 'statistic': [10.0] * 3}
    assert {name for name, _ in tf.train.list_variables(path)} == {'weight', 'statistic'}


def test_metric__is_summed_over_replicas() -> None:
    strategy = strategy_for(2)
    labels, logits = np.int32([[1, -1], [2, 0]]), np.eye(3, dtype=np.float32)[np.int32([[1, 0], [0, 0]])]
    with strategy.scope():
        found = strategy.extended.call_for_each_replica(lambda: evaluation_metrics(own(labels), own(logits)))
        # An Estimator reads one value for all replicas.
        values = {name: value for name, (value, _) in found.items()}
        assert all(isinstance(value, tf.Tensor) for value in values.values())
        updates = [each for _, update in found.values() for each in strategy.experimental_local_results(update)]
        initializer = tf.local_variables_initializer()
    with tf.Session(config=tf.ConfigProto(device_count={'CPU': 2})) as session:
        session.run(initializer)
        for _ in range(2):
            session.run(updates)
        metrics = session.run(values)
    assert metrics['images'] == 6
    np.testing.assert_allclose([metrics['top_1'], metrics['top_5']], [2 / 3, 1])


def test_host_call__gets_the_mean_loss_of_the_replicas(one_layer: None) -> None:
    images, labels = (
        np.random.RandomState(0).normal(size=[2, 3, 75, 75, 3]).astype(np.float32),
        np.int32([[1] * 3, [2] * 3]),
    )
    config = Config(
        use_tpu=False, accelerator='cpu', num_gpus=2, skip_host_call=False, num_classes=5, height=75, width=75, seed=1
    )

    def computation() -> List[tf.Tensor]:
        spec = inception_model_fn(own(images), own(labels), tf.estimator.ModeKeys.TRAIN, {'config': config})
        return [spec.host_call[1][0], spec.loss]

    (one, other), _ = on_replicas(2, computation)
    assert abs(one[1] - other[1]) > 1e-3
    np.testing.assert_allclose([one[0], other[0]], [[(one[1] + other[1]) / 2]] * 2, rtol=1e-6)


@pytest.mark.parametrize('seed', [None, 1])
def test_strategy_on_the_cpu__adds_in_order_with_and_without_a_seed(seed: Any) -> None:
    config = Config(use_tpu=False, accelerator='cpu', num_gpus=3, seed=seed)
    strategy: Any = distribution.strategy_of(config)
    values = np.float32([2**24, 1, -(2**24)])
    with strategy.scope():
        total = strategy.extended.call_for_each_replica(lambda: replicas.sums([[0, 1, 2]], own(values))[0])
        total = strategy.experimental_local_results(total)[0]
    with tf.Session(config=tf.ConfigProto(device_count={'CPU': 3})) as session:
        assert session.run(total) == 0
    assert not {operation.type for operation in tf.get_default_graph().get_operations()} & {'AddN', 'AccumulateNV2'}


def test_estimator__errors_of_a_replicas_model_function_keep_their_type(tmp_path: Any, autograph: None) -> None:
    def model_fn(features: Any, labels: Any, mode: Any, params: Any) -> Any:
        raise ConfigError('--freeze: no such layer')

    strategy: Any = distribution.strategy_of(Config(use_tpu=False, accelerator='cpu', num_gpus=2))
    run_config = tf.estimator.tpu.RunConfig(model_dir=str(tmp_path))
    estimator = ReplicatedEstimator(strategy, model_fn=model_fn, config=run_config, use_tpu=False)
    # On TensorFlow 2, AutoGraph would turn it into another error.
    with pytest.raises(ConfigError, match='--freeze: no such layer'):
        strategy.configure(estimator._session_config)
        with strategy.scope():
            strategy.extended.call_for_each_replica(estimator._call_model_fn, [None, None, 'train', estimator.config])


def test_evaluation_input__ends_with_a_batch_for_each_replica() -> None:
    images = 7
    config = Config(
        use_tpu=False, accelerator='cpu', num_gpus=3, use_data='fake', num_eval_images=images, eval_batch_size=6,
        height=75, width=75,
    )  # fmt: skip
    dataset = InputPipeline(is_training=False, config=config)({'batch_size': 2})
    iterator = tf.data.make_one_shot_iterator(dataset).get_next()[1]
    labels = []
    with tf.Session() as session, pytest.raises(tf.errors.OutOfRangeError):
        while True:
            labels.append(session.run(iterator))
    # Four batches have images, and two complete the second step of three batches.
    assert len(labels) == 6
    assert sum(np.concatenate(labels) >= 0) == images
