"""Tests of the training step against an independent program.

That program uses TF-Slim's network, computes the loss from its definition, and the moving averages in NumPy.
"""

import dataclasses
from typing import Any, Dict, List

import numpy as np
import pytest
import tensorflow as tf

from inception_v3 import model_fn
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.metrics import PADDING_LABEL
from inception_v3.networks import layers

MODES = tf.estimator.ModeKeys
STEPS = 3
# The smallest input with the auxiliary head, and layers of 16 channels.
CONFIG = Config(
    use_tpu=False,
    height=107,
    width=107,
    depth_multiplier=0.01,
    num_classes=11,
    train_batch_size=256,
    num_train_images=256,
    learning_rate_decay_epochs=1,
    learning_rate_decay=0.5,
    batch_norm_decay=0.9,
)
RANDOM = np.random.RandomState(0)
IMAGES = RANDOM.uniform(-1, 1, [STEPS, 4, 107, 107, 3]).astype(np.float32)
LABELS = RANDOM.randint(0, 11, [STEPS, 4]).astype(np.int32)


def build(config: Config, images: Any, labels: Any, mode: str) -> Any:
    return model_fn.inception_model_fn(tf.convert_to_tensor(images), labels, mode, {'config': config})


def initial_values() -> Dict[str, np.ndarray]:
    """Returns a random value for every trainable variable of the graph, seeded by its name."""
    values = {}
    for variable in tf.compat.v1.trainable_variables():
        random = np.random.RandomState(sum(variable.op.name.encode()))
        shape = variable.shape.as_list()
        values[variable.op.name] = random.normal(0, np.sqrt(2 / max(1, np.prod(shape[:-1]))), shape)
    return values


def load(values: Dict[str, np.ndarray], session: tf.compat.v1.Session) -> None:
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    session.run(
        [variables[name].initializer for name in values],
        {variables[name].initializer.inputs[1]: value for name, value in values.items()},
    )


def our_steps(config: Config) -> Dict[str, List[Any]]:
    images, labels = tf.compat.v1.placeholder(tf.float32, IMAGES.shape[1:]), tf.compat.v1.placeholder(tf.int32, [4])
    with pytest.MonkeyPatch.context() as patch:
        # Two programs cannot draw the same dropout.
        patch.setattr(layers, 'dropout', lambda inputs, keep, is_training: inputs)
        spec = build(config, images, labels, MODES.TRAIN)
    result: Dict[str, List[Any]] = {'loss': [], 'variables': []}
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        values = initial_values()
        load(values, session)
        load({f'{k}/ExponentialMovingAverage': v for k, v in values.items()}, session)
        for step in range(STEPS):
            loss, _ = session.run([spec.loss, spec.train_op], {images: IMAGES[step], labels: LABELS[step]})
            result['loss'].append(loss)
            variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
            result['variables'].append(session.run(variables))
    return result


def reference_steps(config: Config) -> Dict[str, List[Any]]:
    from tensorflow.contrib import slim
    from tensorflow.contrib.slim.nets import inception

    images, labels = tf.compat.v1.placeholder(tf.float32, IMAGES.shape[1:]), tf.compat.v1.placeholder(tf.int32, [4])
    rate = tf.compat.v1.placeholder(tf.float32, [])
    with slim.arg_scope(inception.inception_v3_arg_scope(weight_decay=0.0, batch_norm_decay=config.batch_norm_decay)):
        logits, end_points = inception.inception_v3(
            images, 11, is_training=True, dropout_keep_prob=1.0, depth_multiplier=0.01
        )
    # Szegedy et al., section 7: q'(k) = 0.9 [k = y] + 0.1 / K.
    smoothed = 0.9 * tf.one_hot(labels, 11) + 0.1 / 11

    def cross_entropy(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(-tf.reduce_sum(smoothed * tf.nn.log_softmax(x), axis=1))

    trainable = tf.compat.v1.trainable_variables()
    decayed = [v for v in trainable if v.shape.ndims == 4]
    l2 = 4e-5 * sum(tf.reduce_sum(v**2) / 2 for v in decayed)
    loss = cross_entropy(logits) + 0.4 * cross_entropy(end_points['AuxLogits']) + l2
    optimizer = tf.compat.v1.train.RMSPropOptimizer(rate, 0.9, 0.9, 1.0)
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
        train = optimizer.minimize(loss)
    result: Dict[str, List[Any]] = {'loss': [], 'variables': []}
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        values = initial_values()
        load(values, session)
        averages = dict(values)
        for step in range(STEPS):
            feed = {images: IMAGES[step], labels: LABELS[step], rate: learning_rate(step, config)}
            result['loss'].append(session.run([loss, train], feed)[0])
            variables = session.run({v.op.name: v for v in tf.compat.v1.global_variables()})
            # The number of updates is the global step after the update: 1, 2, 3.
            decay = min(config.moving_average_decay, (2 + step) / (11 + step))
            for name in averages:
                averages[name] = averages[name] - (1 - decay) * (averages[name] - variables[name])
                variables[f'{name}/ExponentialMovingAverage'] = averages[name]
            variables['global_step'] = np.int64(step + 1)
            result['variables'].append(variables)
    return result


@pytest.fixture(scope='module')
def ours() -> Dict[str, List[Any]]:
    """The losses and variables of three training steps of this program, in float32."""
    with tf.Graph().as_default():
        return our_steps(CONFIG)


def test_training__three_steps_agree_with_an_independent_program(ours: Dict[str, List[Any]]) -> None:
    theirs = reference_steps(CONFIG)
    np.testing.assert_allclose(ours['loss'], theirs['loss'], rtol=1e-5)
    # Rounding errors grow with every step, because batch normalization over four images amplifies them.
    for our_variables, their_variables, tolerance in zip(ours['variables'], theirs['variables'], [1e-5, 1e-4, 1e-3]):
        assert our_variables.keys() == their_variables.keys()
        for name, value in their_variables.items():
            scale = max(1e-2, np.abs(value).max())
            np.testing.assert_allclose(our_variables[name], value, atol=tolerance * scale, err_msg=name)
    # The weights move by far more than these tolerances.
    kernel = 'InceptionV3/Conv2d_2a_3x3/weights'
    moves = [
        np.abs(after[kernel] - before[kernel]).max() for before, after in zip(ours['variables'], ours['variables'][1:])
    ]
    assert min(moves) > 0.02


def test_weight_decay__applies_to_kernels_only() -> None:
    build(CONFIG, IMAGES[0], LABELS[0], MODES.TRAIN)
    decayed = {v.op.name for v in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.WEIGHTS)}
    rest = {v.op.name for v in tf.compat.v1.trainable_variables()} - decayed
    assert len(decayed) == 98
    assert all(name.endswith('/weights') for name in decayed)
    assert {name.rpartition('/')[2] for name in rest} == {'beta', 'biases'}


@pytest.mark.parametrize(
    ('config', 'smoothing', 'decay'),
    [(Config(), 0.1, 4e-5), (Config(label_smoothing=0.0, weight_decay=1e-4), 0.0, 1e-4)],
)
def test_loss__is_the_sum_of_its_three_terms(config: Config, smoothing: float, decay: float) -> None:
    tf.compat.v1.get_variable('w', initializer=[3.0, 4.0], collections=[tf.compat.v1.GraphKeys.WEIGHTS])
    logits, auxiliary = np.array([[1.0, 2.0, 0.5]]), np.array([[0.0, -1.0, 3.0]])
    loss = model_fn.total_loss(
        tf.constant(logits, tf.float32), tf.constant(auxiliary, tf.float32), tf.constant([1], tf.int32), config
    )
    target = np.array([0.0, 1.0 - smoothing, 0.0]) + smoothing / 3
    terms = [-(target * (x - np.log(np.exp(x).sum()))).sum() for x in (logits, auxiliary)]
    with tf.compat.v1.Session() as session:
        session.run([v.initializer for v in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.WEIGHTS)])
        assert session.run(loss) == pytest.approx(terms[0] + 0.4 * terms[1] + decay * 12.5, rel=1e-6)


def test_transpose_enabled__gives_the_same_loss() -> None:
    def loss(config: Config, images: np.ndarray) -> float:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            spec = build(config, images, LABELS[0], MODES.EVAL)
            session.run(tf.compat.v1.global_variables_initializer())
            load(initial_values(), session)
            return session.run(spec.loss)

    # Height and width differ, so that a wrong order of the axes fails.
    config = dataclasses.replace(CONFIG, height=75, width=90)
    images = np.ascontiguousarray(IMAGES[0][:, :75, :90])
    transposed = dataclasses.replace(config, transpose_enabled=True)
    assert loss(transposed, images.transpose([1, 2, 3, 0])) == pytest.approx(loss(config, images), rel=1e-6)


def test_clear_update_collections__updates_statistics_in_place() -> None:
    def moved(clear: bool) -> Any:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            config = dataclasses.replace(CONFIG, clear_update_collections=clear, optimizer='sgd')
            spec = build(config, IMAGES[0], LABELS[0], MODES.TRAIN)
            session.run(tf.compat.v1.global_variables_initializer())
            load(initial_values(), session)
            session.run(spec.train_op)
            moving = {v.op.name: v for v in tf.compat.v1.global_variables() if 'moving_' in v.op.name}
            count = len(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))
            return count, session.run(moving)

    (count_in_place, in_place), (count_collected, collected) = moved(True), moved(False)
    # Two moving statistics for each of the 96 batch normalizations.
    assert (count_in_place, count_collected) == (0, 2 * 96)
    for name, value in in_place.items():
        np.testing.assert_allclose(collected[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
        assert np.ptp(value) > 0, name


def test_evaluation__has_no_dropout_and_export_no_auxiliary_head() -> None:
    build(CONFIG, IMAGES[0], LABELS[0], MODES.EVAL)
    operations = {operation.type for operation in tf.compat.v1.get_default_graph().get_operations()}
    assert 'RandomUniform' not in operations
    with tf.Graph().as_default():
        build(CONFIG, IMAGES[0], None, MODES.PREDICT)
        assert not [v for v in tf.compat.v1.global_variables() if 'AuxLogits' in v.op.name]


def test_evaluation__ignores_padding() -> None:
    labels = np.array([1, 2, PADDING_LABEL, PADDING_LABEL], np.int32)
    spec = build(CONFIG, IMAGES[0], tf.constant(labels), MODES.EVAL).as_estimator_spec()
    with tf.compat.v1.Session() as session:
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        session.run([update for _, update in spec.eval_metric_ops.values()])
        assert session.run(spec.eval_metric_ops['images'][0]) == 2


def convolution_types(config: Config, mode: str) -> Any:
    with tf.Graph().as_default() as graph:
        spec = build(config, IMAGES[0], LABELS[0], mode)
        types = {o.inputs[0].dtype.base_dtype for o in graph.get_operations() if o.type == 'Conv2D'}
        kept = {v.dtype.base_dtype for v in tf.compat.v1.global_variables() if v.op.name != 'global_step'}
        return types, kept, spec


def test_bfloat16__is_the_type_of_activations_only() -> None:
    config = dataclasses.replace(CONFIG, precision='bfloat16', use_tpu=True)
    types, kept, spec = convolution_types(config, MODES.EVAL)
    assert types == {tf.bfloat16}
    assert kept == {tf.float32}
    assert spec.loss.dtype == tf.float32
    # CPUs have no bfloat16 convolution: the rounded values are multiplied in float32.
    types, kept, spec = convolution_types(dataclasses.replace(config, use_tpu=False), MODES.TRAIN)
    assert (types, kept, spec.loss.dtype) == ({tf.float32}, {tf.float32}, tf.float32)
    types, _, _ = convolution_types(config, MODES.PREDICT)
    assert types == {tf.float32}


def test_bfloat16__trains_close_to_but_not_equal_to_float32(ours: Dict[str, List[Any]]) -> None:
    exact = ours['loss']
    rounded = our_steps(dataclasses.replace(CONFIG, precision='bfloat16'))['loss']
    # bfloat16 has a significand of 8 bits, and each step amplifies the rounding errors of the previous step.
    np.testing.assert_allclose(rounded[:2], exact[:2], rtol=0.03)
    np.testing.assert_allclose(rounded[2], exact[2], rtol=0.1)
    assert (np.array(rounded) != exact).all()
