"""Tests of the training step, the loss, evaluation and prediction.

A network of one layer stands for the real ones, except where these matter. `test_training_step.py` compares whole
training steps with independent programs.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from compat import tf
from inception_v3 import model_fn
from inception_v3.config import PADDING_LABEL, Config, ConfigError
from tests.support.graphs import evaluate, plain_session
from tests.support.slim import load, values_by_name

MODES = tf.estimator.ModeKeys
# The smallest height with the auxiliary head. The width differs, so that a wrong order of the axes fails.
CONFIG = Config(use_tpu=False, height=107, width=120, num_classes=11, batch_norm_decay=0.9, depth_multiplier=0.01)
RANDOM = np.random.RandomState(0)
IMAGES = RANDOM.uniform(-1, 1, [4, 107, 120, 3]).astype(np.float32)
LABELS = RANDOM.randint(0, 11, 4).astype(np.int32)


def build(config: Config, mode: str, images: Any = IMAGES, labels: Any = LABELS) -> Any:
    return model_fn.inception_model_fn(tf.convert_to_tensor(images), labels, mode, {'config': config})


def test_weight_decay__applies_to_kernels_only(few_blocks: None) -> None:
    build(CONFIG, MODES.EVAL)
    decayed = {v.op.name for v in tf.get_collection(tf.GraphKeys.WEIGHTS)}
    rest = {v.op.name for v in tf.trainable_variables()} - decayed
    # The stem, the first blocks of each size, the logits and the auxiliary head.
    assert len(decayed) == 5 + 7 + 4 + 6 + 1 + 3
    assert all(name.endswith('/weights') for name in decayed)
    assert {name.rpartition('/')[2] for name in rest} == {'beta', 'biases'}
    assert len([name for name in decayed if '/AuxLogits/' in name]) == 3


@pytest.mark.parametrize(
    ('config', 'smoothing', 'decay'),
    [(Config(), 0.1, 4e-5), (Config(label_smoothing=0.0, weight_decay=1e-4), 0.0, 1e-4)],
)
def test_loss__is_the_sum_of_its_three_terms(config: Config, smoothing: float, decay: float) -> None:
    tf.get_variable('w', initializer=[3.0, 4.0], collections=[tf.GraphKeys.WEIGHTS])
    logits, auxiliary = np.array([[1.0, 2.0, 0.5]]), np.array([[0.0, -1.0, 3.0]])
    loss = model_fn.total_loss(
        tf.constant(logits, tf.float32), tf.constant(auxiliary, tf.float32), tf.constant([1], tf.int32), config
    )
    target = np.array([0.0, 1.0 - smoothing, 0.0]) + smoothing / 3
    terms = [-(target * (x - np.log(np.exp(x).sum()))).sum() for x in (logits, auxiliary)]
    with tf.Session() as session:
        session.run([v.initializer for v in tf.get_collection(tf.GraphKeys.WEIGHTS)])
        assert session.run(loss) == pytest.approx(terms[0] + 0.4 * terms[1] + decay * 12.5, rel=1e-6)


@pytest.mark.parametrize('smoothing', [0.1, 0.0])
def test_loss__weighs_images_by_their_labels(smoothing: float) -> None:
    weights, labels = np.array([1.0, 0.25, 4.0]), np.array([1, 2, 2, 0])
    logits, auxiliary = RANDOM.normal(size=[2, 4, 3]).astype(np.float32)
    config = Config(class_weights='mine=1,0.25,4', label_smoothing=smoothing)

    def loss(part: slice) -> tf.Tensor:
        main, other, own = (tf.constant(each[part]) for each in (logits, auxiliary, labels.astype(np.int32)))
        return model_fn.total_loss(main, other, own, config)

    targets = np.eye(3)[labels] * (1 - smoothing) + smoothing / 3
    by_hand = [-(targets * (x - np.log(np.exp(x).sum(1, keepdims=True)))).sum(1) for x in (logits, auxiliary)]
    whole, *halves = evaluate(*map(loss, (slice(4), slice(2), slice(2, 4))))
    assert whole == pytest.approx((weights[labels] * (by_hand[0] + 0.4 * by_hand[1])).mean(), rel=1e-6)
    # Keras also divides by the number of images: its class_weight multiplies the losses of images.
    keras = tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    theirs = [keras(np.eye(3, dtype=np.float32)[labels], x, sample_weight=weights[labels]) for x in (logits, auxiliary)]
    assert whole == pytest.approx(np.dot([1, 0.4], evaluate(*theirs)), rel=1e-6)
    # The mean over replicas, which have different classes, is the mean over the whole batch.
    assert np.mean(halves) == pytest.approx(whole, rel=1e-6)


def test_loss__refuses_weights_of_another_number_of_classes() -> None:
    for numbers in ('1,2', '1,2,3,4'):
        config = Config(class_weights=f'mine={numbers}')
        with pytest.raises(ConfigError, match=f'--class_weights: has {numbers[-1]} numbers for 3 classes'):
            model_fn.total_loss(tf.zeros([1, 3]), None, tf.constant([1]), config)


def test_transpose_enabled__gives_the_same_loss(one_layer: None) -> None:
    # The layer has 3 x 3 windows, whose results depend on the order of the axes.
    def loss(config: Config, images: np.ndarray) -> float:
        with tf.Graph().as_default(), plain_session() as session:
            spec = build(config, MODES.EVAL, images)
            session.run(tf.global_variables_initializer())
            load(values_by_name(), session)
            return session.run(spec.loss)

    transposed = dataclasses.replace(CONFIG, transpose_enabled=True)
    assert loss(transposed, IMAGES.transpose([1, 2, 3, 0])) == pytest.approx(loss(CONFIG, IMAGES), rel=1e-6)


def test_clear_update_collections__updates_statistics_in_place(tiny: None) -> None:
    def moved(clear: bool) -> Any:
        with tf.Graph().as_default(), plain_session() as session:
            spec = build(dataclasses.replace(CONFIG, clear_update_collections=clear, optimizer='sgd'), MODES.TRAIN)
            session.run(tf.global_variables_initializer())
            load({name: value for name, value in values_by_name().items() if 'moving' not in name}, session)
            session.run(spec.train_op)
            moving = [v for v in tf.global_variables() if 'moving_' in v.op.name]
            return len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)), session.run(moving)

    (count_in_place, in_place), (count_collected, collected) = moved(True), moved(False)
    assert (count_in_place, count_collected, len(in_place)) == (0, 2, 2) and all(np.ptp(each) > 0 for each in in_place)
    np.testing.assert_allclose(collected, in_place, rtol=1e-5, atol=1e-6)


def test_averages__first_decays_are_those_of_steps_1_and_2(tiny: None) -> None:
    # An Estimator's global step is not a resource. Its reads have no defined order, so try several times.
    with tf.variable_scope('', use_resource=False):
        global_step = tf.train.create_global_step()
    assert 'Resource' not in type(global_step).__name__
    spec = build(dataclasses.replace(CONFIG, learning_rate=10.0), MODES.TRAIN)
    name = 'Logits/weights'
    found = {v.op.name: v for v in tf.global_variables()}
    pair = [found[name], found[f'{name}/ExponentialMovingAverage']]
    for _ in range(2):
        # With TensorFlow's graph optimizations, which move reads.
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for decay in (2 / 11, 3 / 12):
                _, average = session.run(pair)
                session.run(spec.train_op)
                weight, after = session.run(pair)
                assert np.abs(weight - average).max() > 1e-3
                np.testing.assert_allclose(after, average - (1 - decay) * (average - weight), atol=1e-6)


def test_evaluation__has_no_dropout_and_export_no_auxiliary_head(tiny: None) -> None:
    found = {}
    for mode in (MODES.TRAIN, MODES.EVAL, MODES.PREDICT):
        with tf.Graph().as_default() as graph:
            build(CONFIG, mode, labels=None if mode == MODES.PREDICT else LABELS)
            drops = 'RandomUniform' in {operation.type for operation in graph.get_operations()}
            found[mode] = drops, any('AuxLogits' in v.op.name for v in tf.trainable_variables())
    assert found == {MODES.TRAIN: (True, True), MODES.EVAL: (False, True), MODES.PREDICT: (False, False)}
    assert not model_fn.network_options(CONFIG, MODES.PREDICT)['auxiliary_head']


def test_evaluation__ignores_padding(tiny: None) -> None:
    labels = np.array([1, 2, PADDING_LABEL, PADDING_LABEL], np.int32)
    spec = build(CONFIG, MODES.EVAL, labels=tf.constant(labels)).as_estimator_spec()
    with plain_session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run([update for _, update in spec.eval_metric_ops.values()])
        assert session.run(spec.eval_metric_ops['images'][0]) == 2
        assert np.isfinite(session.run(spec.loss))


def test_prediction__returns_classes_probabilities_and_names(tiny: None) -> None:
    names = [f'class {label}' for label in range(11)]
    # Exported models receive images in the usual order of axes.
    params = {'config': dataclasses.replace(CONFIG, transpose_enabled=True), 'class_names': names}
    spec = model_fn.inception_model_fn(tf.constant(IMAGES), None, MODES.PREDICT, params)
    assert set(spec.predictions) == {'classes', 'probabilities'}, 'a TPU returns no strings'
    output = spec.export_outputs['image_bytes']
    with plain_session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        load(values_by_name(), session)
        found = session.run(output.outputs)
        weights, biases = session.run(['Logits/weights/Read/ReadVariableOp:0', 'Logits/biases/Read/ReadVariableOp:0'])
        pooled = session.run('Mean:0').reshape([4, -1])
    logits = pooled @ weights[0, 0] + biases
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found['probabilities'], expected, rtol=1e-5)
    np.testing.assert_array_equal(found['classes'], expected.argmax(axis=1))
    assert [name.decode() for name in found['class_names']] == [names[label] for label in expected.argmax(axis=1)]


@pytest.mark.parametrize('moving_average', [True, False])
def test_prediction__restores_averages_if_there_are_any(tiny: None, moving_average: bool) -> None:
    spec = build(dataclasses.replace(CONFIG, moving_average=moving_average), MODES.PREDICT, labels=None)
    assert (spec.scaffold_fn is not None) == moving_average
    if moving_average:
        restored = spec.scaffold_fn().saver.saver_def
        assert restored is not None
        (names,) = [
            operation.inputs[1]
            for operation in tf.get_default_graph().get_operations()
            if operation.type == 'RestoreV2'
        ]
        keys = {name.decode() for name in tf.get_static_value(names)}
        assert 'Logits/weights/ExponentialMovingAverage' in keys and 'Logits/weights' not in keys
        assert 'Layer/BatchNorm/moving_mean' in keys


def convolution_types(config: Config, mode: str) -> Any:
    with tf.Graph().as_default() as graph:
        spec = build(config, mode)
        types = {o.inputs[0].dtype.base_dtype for o in graph.get_operations() if o.type == 'Conv2D'}
        kept = {v.dtype.base_dtype for v in tf.global_variables() if v.op.name != 'global_step'}
        return types, kept, spec


def test_bfloat16__is_the_type_of_activations_only(few_blocks: None) -> None:
    types, kept, spec = convolution_types(dataclasses.replace(CONFIG, precision='bfloat16', use_tpu=True), MODES.EVAL)
    assert types == {tf.bfloat16}
    assert kept == {tf.float32}
    assert spec.loss.dtype == tf.float32


def test_bfloat16__cpus_multiply_rounded_values_in_float32_and_exports_do_not_round(tiny: None) -> None:
    config = dataclasses.replace(CONFIG, precision='bfloat16')
    types, kept, spec = convolution_types(config, MODES.TRAIN)
    assert (types, kept, spec.loss.dtype) == ({tf.float32}, {tf.float32}, tf.float32)
    with tf.Graph().as_default() as graph:
        build(dataclasses.replace(config, use_tpu=True), MODES.PREDICT, labels=None)
        dtypes = {tensor.dtype.base_dtype for o in graph.get_operations() for tensor in o.outputs}
        assert tf.bfloat16 not in dtypes and tf.float32 in dtypes
    emulated = dataclasses.replace(config, use_tpu=True, tpu='emulated:1', num_shards=1)
    assert convolution_types(emulated, MODES.EVAL)[0] == {tf.float32}


def test_host_call_and_display_tensors__are_in_the_graph_on_request(tiny: None) -> None:
    config = dataclasses.replace(CONFIG, model_dir='unused')
    for asked in (True, False):
        with tf.Graph().as_default():
            spec = build(dataclasses.replace(config, skip_host_call=not asked), MODES.TRAIN)
        assert (spec.host_call is not None) == asked
        with tf.Graph().as_default() as graph:
            build(dataclasses.replace(config, display_tensors=asked), MODES.EVAL).as_estimator_spec()
        assert ('PrintV2' in {operation.type for operation in graph.get_operations()}) == asked


def test_network_options__are_those_of_the_run() -> None:
    options = model_fn.network_options(CONFIG)
    assert (options['depth_multiplier'], options['auxiliary_head']) == (0.01, True)
    resnet = Config(network='resnet50', depth_multiplier=0.5, zero_init_last_scale=True)
    assert model_fn.network_options(resnet) == {'depth_multiplier': 0.5, 'zero_init_last_scale': True}
    revnet = Config(network='revnet38', rebuild_activations=False)
    assert model_fn.network_options(revnet) == {'depth_multiplier': 1.0, 'rebuild_activations': False}
