"""Tests of emulated cores: sums over cores, their gradients, and the variables of each core."""

from typing import Any, Dict, List

import numpy as np
import pytest
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.tpu.ops import tpu_ops

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.tpu import slices, topology
from inception_v3.tpu.emulation import EmulatedTPUEstimator
from tests.support.emulation import on_cores
from tests.support.tiers import further

CORES = 4
ALL = [list(range(CORES))]
GROUPS = [ALL, [[0, 1], [2, 3]], [[0], [1], [2], [3]], [[0, 3], [1, 2]]]
# Input of each core, [cores, batch, height, width, channels]. Its mean differs by 1 from core to core.
INPUTS = np.random.RandomState(0).normal(size=[CORES, 4, 3, 3, 2]).astype(np.float32)
INPUTS += np.arange(CORES, dtype=np.float32).reshape([CORES, 1, 1, 1, 1])
DECAY = 0.9


@pytest.mark.parametrize('groups', GROUPS)
def test_cross_replica_sum__is_over_the_cores_of_a_group(groups: List[List[int]]) -> None:
    results, _ = on_cores(CORES, lambda core: tpu_ops.cross_replica_sum(tf.constant([1.0 * core, 10.0**core]), groups))
    for group in groups:
        for core in group:
            np.testing.assert_array_equal(results[core], [sum(group), sum(10.0**c for c in group)])


def test_cross_replica_sum__has_gradients_for_every_core() -> None:
    # The loss of a core is (core + 1) * total^2 / 2, so d(sum of losses)/dx = sum(core + 1) * total = 10 * 3.
    def computation(core: int) -> tf.Tensor:
        x = tf.constant(0.5 * core)
        total = tpu_ops.cross_replica_sum(x)
        return tf.gradients((core + 1.0) * total**2 / 2, x)[0]

    results, _ = on_cores(CORES, computation)
    np.testing.assert_allclose(results, [10.0 * 3.0] * CORES)


def test_variables__start_from_the_first_core_and_only_its_own_are_kept() -> None:
    def computation(core: int) -> tf.Tensor:
        variable = tf.get_variable('count', initializer=100.0, use_resource=True)
        before = variable.read_value()
        with tf.control_dependencies([before]), tf.control_dependencies([variable.assign_add(core + 1.0)]):
            return tf.stack([before, variable.read_value()])

    results, variables = on_cores(CORES, computation, times=3)
    np.testing.assert_array_equal(results, [[102.0, 103.0 + core] for core in range(CORES)])
    assert variables == {'count': 103.0}


def test_replica_context__tells_each_core_its_own_number() -> None:
    def computation(core: int) -> List[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        return [tf.convert_to_tensor(context.replica_id_in_sync_group), gen_xla_ops.xla_replica_id()]

    results, _ = on_cores(CORES, computation)
    assert results == [[core, core] for core in range(CORES)]


@pytest.mark.parametrize(
    ('groups', 'update_in_place'), [further(GROUPS[0], True), (GROUPS[1], False), (GROUPS[3], True)]
)
def test_synchronized_batch_norm__uses_the_whole_batch_of_a_group(
    groups: List[List[int]], update_in_place: bool
) -> None:
    def computation(core: int) -> Any:
        outputs = BatchNorm(is_training=True, decay=DECAY, update_in_place=update_in_place, synchronized_over=groups)(
            tf.constant(INPUTS[core])
        )
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            return tf.identity(outputs)

    results, variables = on_cores(CORES, computation)
    for group in groups:
        mean, variance = INPUTS[group].mean((0, 1, 2, 3)), INPUTS[group].var((0, 1, 2, 3))
        for core in group:
            np.testing.assert_allclose(results[core], (INPUTS[core] - mean) / np.sqrt(variance + 1e-3), atol=1e-5)
    first = INPUTS[groups[0]].reshape([-1, 2])
    np.testing.assert_allclose(variables['BatchNorm/moving_mean'], (1 - DECAY) * first.mean(0), atol=1e-6)
    expected = DECAY + (1 - DECAY) * first.var(0, ddof=1)
    np.testing.assert_allclose(variables['BatchNorm/moving_variance'], expected, rtol=1e-5)


@pytest.mark.parametrize('groups', [further(GROUPS[0]), GROUPS[3]])
def test_synchronized_batch_norm__has_the_gradients_of_the_whole_batch(groups: List[List[int]]) -> None:
    weights = np.random.RandomState(1).normal(size=INPUTS.shape).astype(np.float32)

    def computation(core: int) -> tf.Tensor:
        x = tf.constant(INPUTS[core])
        outputs = BatchNorm(is_training=True, decay=DECAY, synchronized_over=groups)(x)
        return tf.gradients(tf.reduce_sum(outputs**2 * weights[core]), x)[0]

    results, _ = on_cores(CORES, computation)
    for group in groups:
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.constant(INPUTS[group].reshape([-1, 3, 3, 2]), tf.float64)
            mean, variance = tf.nn.moments(x, [0, 1, 2])
            outputs = (x - mean) / tf.sqrt(variance + 1e-3)
            loss = tf.reduce_sum(outputs**2 * weights[group].reshape([-1, 3, 3, 2]))
            expected = session.run(tf.gradients(loss, x)[0])
        found = np.concatenate([results[core] for core in group])
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_averaged_batch_norm__keeps_the_mean_of_the_cores_statistics() -> None:
    def computation(core: int) -> tf.Tensor:
        return BatchNorm(is_training=True, decay=DECAY, averaged_over=ALL)(tf.constant(INPUTS[core]))

    results, variables = on_cores(CORES, computation)
    for core in range(CORES):
        mean, variance = INPUTS[core].mean((0, 1, 2)), INPUTS[core].var((0, 1, 2))
        np.testing.assert_allclose(results[core], (INPUTS[core] - mean) / np.sqrt(variance + 1e-3), atol=1e-4)
    means = INPUTS.mean((1, 2, 3))
    variances = INPUTS.reshape([CORES, -1, 2]).var(1, ddof=1)
    np.testing.assert_allclose(variables['BatchNorm/moving_mean'], (1 - DECAY) * means.mean(0), rtol=1e-5)
    expected = DECAY + (1 - DECAY) * variances.mean(0)
    np.testing.assert_allclose(variables['BatchNorm/moving_variance'], expected, rtol=1e-5)
    # The mean of the variances does not include the variance of the means, which is about 1.25 here.
    assert np.all(INPUTS.var((0, 1, 2, 3)) - variances.mean(0) > 0.9)


def test_local_batch_norm__keeps_the_first_cores_statistics() -> None:
    _, variables = on_cores(CORES, lambda core: BatchNorm(is_training=True, decay=DECAY)(tf.constant(INPUTS[core])))
    np.testing.assert_allclose(variables['BatchNorm/moving_mean'], (1 - DECAY) * INPUTS[0].mean((0, 1, 2)), atol=1e-6)


ITERATIONS = 3


def estimator_of(model_dir: str, tpu: str) -> EmulatedTPUEstimator:
    """An estimator of a model of one weight, whose values can be computed by hand."""
    described = topology.emulated(tpu)
    api = tf.estimator.tpu

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> Any:
        weight = tf.get_variable('weight', initializer=0.0, use_resource=True)
        seen = tf.get_variable('seen', initializer=0.0, trainable=False, use_resource=True)
        loss = tf.reduce_mean(features * weight)
        if mode == tf.estimator.ModeKeys.EVAL:
            return api.TPUEstimatorSpec(
                mode,
                loss=loss,
                eval_metrics=(lambda x: {'mean': tf.metrics.mean(x), 'first': tf.metrics.mean(x[0])}, [features]),
            )
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(1.0))
        # Read before the update: Estimator's global step is not a resource, so its reads are not ordered.
        step = tf.reshape(tf.cast(tf.train.get_global_step(), tf.int32), [1])
        with tf.control_dependencies([step, seen.assign_add(tf.reduce_sum(features))]):
            train_op = optimizer.minimize(loss, tf.train.get_global_step())

        def write(values: tf.Tensor, steps: tf.Tensor) -> Any:
            return tf.print('outfed', steps[0], values, summarize=-1, output_stream=f'file://{model_dir}/outfed')

        return api.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=(write, [features, step]))

    config = api.RunConfig(
        model_dir=model_dir,
        master='',
        session_config=tf.ConfigProto(allow_soft_placement=True),
        tpu_config=api.TPUConfig(
            iterations_per_loop=ITERATIONS,
            num_shards=described.cores,
            per_host_input_for_training=api.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    batch = 2 * described.cores
    estimator = EmulatedTPUEstimator(
        described, config, model_fn=model_fn, use_tpu=True, train_batch_size=batch, eval_batch_size=batch
    )
    slices.evaluate_on_all_hosts(estimator)
    return estimator


def input_fn(params: Dict[str, Any]) -> tf.data.Dataset:
    """Yields batches of the numbers 1, 2, 3 … on the first host, 101, 102, 103 … on the second, and so on."""
    _, host, _, _ = params['context'].current_input_fn_deployment()
    numbers = tf.data.Dataset.range(100 * host + 1, 100 * host + 100).map(lambda i: tf.cast(i, tf.float32))
    batches = numbers.batch(params['batch_size'], drop_remainder=True)
    return tf.data.Dataset.zip((batches, batches))


def test_estimator__trains_and_evaluates(tmp_path: Any) -> None:
    estimator = estimator_of(str(tmp_path), 'emulated:4x2')
    estimator.train(input_fn, max_steps=2 * ITERATIONS)
    # In the first step, host 0 feeds 1, 2 to core 0 and 3, 4 to core 1; in the second, 5, 6 to core 0. Host 1 does
    # the same with the numbers from 101.
    steps = range(2 * ITERATIONS)
    fed = np.array([[[100 * h + 4 * s + n + 1 for h in (0, 1) for n in range(4)]] for s in steps], np.float32)
    assert estimator.get_variable_value('weight') == pytest.approx(-fed.mean((1, 2)).sum())
    # The first core's sum over both loops: only its variables are saved.
    assert estimator.get_variable_value('seen') == fed[:, 0, :2].sum()
    assert estimator.get_variable_value('global_step') == 2 * ITERATIONS
    lines = (tmp_path / 'outfed').read_text().splitlines()
    assert len(lines) == 2 * ITERATIONS
    for step, line in enumerate(lines):
        # The values of all cores, in order, after the number of the step.
        assert line == f'outfed {step} [{" ".join(f"{number:g}" for number in fed[step, 0])}]'
    metrics = estimator.evaluate(input_fn, steps=2)
    # In two steps, each host feeds its first eight numbers.
    assert metrics['mean'] == np.mean([[100 * host + np.arange(1, 9)] for host in (0, 1)])
    assert metrics['first'] == np.mean([1, 5])
