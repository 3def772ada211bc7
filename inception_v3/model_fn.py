"""The model function of TPUEstimator: network, loss, optimizer and averages of one step."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from compat import tf
from inception_v3 import class_weights, loss_scale, metrics, moving_average, replicas, seeding
from inception_v3.batch_norm import batch_norm_for
from inception_v3.config import Config, ConfigError
from inception_v3.host_call import host_call
from inception_v3.input.infeed import Features, Infeed
from inception_v3.learning_rate import learning_rate
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS, has_auxiliary_head
from inception_v3.optimizers import make_optimizer
from inception_v3.tpu import accelerator
from inception_v3.weights.fine_tuning import FineTuning

# Szegedy et al., section 4.
AUXILIARY_WEIGHT = 0.4

# The signature of an exported model, and the name of its input.
EXPORT_SIGNATURE = 'image_bytes'

_TRAIN = tf.estimator.ModeKeys.TRAIN
_PREDICT = tf.estimator.ModeKeys.PREDICT


def inception_model_fn(
    features: Features, labels: Optional[tf.Tensor], mode: str, params: Dict[str, Any]
) -> tf.estimator.tpu.TPUEstimatorSpec:
    """Builds the graph of a training step, an evaluation step or a prediction.

    Args:
      features: a batch from the input pipeline; for prediction, images as `Infeed.received` returns them.
      labels: int32 [batch], in evaluation `config.PADDING_LABEL` for padding; None for prediction.
      mode: one of `tf.estimator.ModeKeys`.
      params: `config` is the run's `Config`; without it, the documented defaults apply, on the device that
        TPUEstimator's `use_tpu` selects. `class_names`, optional, are the names of the classes by label.
    """
    config: Config = params.get('config') or Config(use_tpu=params.get('use_tpu', True))
    class_names: Sequence[str] = params.get('class_names', ())
    fine_tuning = FineTuning(config, seeding.variable_getter(config)) if mode == _TRAIN else None
    # Resource variables have a defined order of reads and writes, on a CPU as on a TPU.
    variables = tf.variable_scope(tf.get_variable_scope(), use_resource=True)
    with accelerator.placement(config, is_exported=mode == _PREDICT), variables:
        images = Infeed(config).received(features, config.transpose_enabled and mode != _PREDICT)
        logits, auxiliary_logits = _network(images, mode, config, fine_tuning)
        if fine_tuning:
            fine_tuning.check()
            return _training(logits, auxiliary_logits, labels, config, fine_tuning)
        if mode == _PREDICT:
            return _prediction(logits, config, class_names)
        return _evaluation(logits, labels, config, class_names)


def _network(
    images: tf.Tensor, mode: str, config: Config, fine_tuning: Optional[FineTuning] = None
) -> Tuple[tf.Tensor, Optional[tf.Tensor]]:
    """The logits and the auxiliary logits, float32 [batch, num_classes]."""
    is_training = mode == _TRAIN
    # An exported model runs in float32 on any device.
    dtype = tf.float32 if mode == _PREDICT else tf.as_dtype(config.precision)
    layout = accelerator.layout_for(config, is_exported=mode == _PREDICT)
    if layout == layers.NCHW:
        images = tf.transpose(images, layers.NCHW.ordered(*range(4)))
    on_cpu = config.is_emulated or not (config.use_tpu or accelerator.on_gpu(config))
    create = fine_tuning.get if fine_tuning else seeding.variable_getter(config)
    is_frozen = fine_tuning.has_fixed_statistics if fine_tuning else None
    with tf.variable_scope(tf.get_variable_scope(), custom_getter=create, auxiliary_name_scope=False):
        outputs = NETWORKS[config.network].build(
            tf.cast(images, dtype),
            config.num_classes,
            is_training,
            conv=layers.conv_for(dtype, on_cpu, layout),
            norm=batch_norm_for(config, is_training, layout, is_frozen),
            layout=layout,
            **network_options(config, mode),
        )
    logits, auxiliary_logits = (None if each is None else tf.cast(each, tf.float32) for each in outputs)
    return logits, auxiliary_logits


def network_shapes(config: Config) -> Dict[str, List[int]]:
    """The shapes of the network's variables by name, including the auxiliary head and the moving statistics."""
    with tf.Graph().as_default(), tf.variable_scope(tf.get_variable_scope(), use_resource=True):
        _network(tf.zeros([1, config.height, config.width, 3]), tf.estimator.ModeKeys.EVAL, config)
        return {variable.op.name: variable.shape.as_list() for variable in tf.global_variables()}


def network_options(config: Config, mode: str = _TRAIN) -> Dict[str, Any]:
    """The options with which the run's network is built, a subset of `networks.registry.OPTIONS`."""
    options = {
        'dropout': seeding.dropout_for(config),
        'depth_multiplier': config.depth_multiplier,
        # Prediction leaves it out, so that an exported model does not carry its weights.
        'auxiliary_head': has_auxiliary_head(config) and mode != _PREDICT,
        'zero_init_last_scale': config.zero_init_last_scale,
        'rebuild_activations': config.rebuild_activations,
    }
    return {name: options[name] for name in NETWORKS[config.network].options}


def total_loss(
    logits: tf.Tensor, auxiliary_logits: Optional[tf.Tensor], labels: tf.Tensor, config: Config
) -> tf.Tensor:
    """The training loss, a float32 scalar.

    Mean softmax cross-entropy with labels smoothed by `label_smoothing` (0.1), plus 0.4 times the same for the
    auxiliary logits, plus `weight_decay` (4e-5) times half the sum of squares of the weights in the collection WEIGHTS:
    the weights of convolutions and dense layers that are not frozen, without biases and batch normalization.

    With `class_weights`, the cross-entropies of an image are multiplied by the weight of its label. The mean still
    divides by the number of images, not by the sum of their weights, so that the mean over the replicas equals the mean
    over the whole batch.

    Args:
      logits: float32 [batch, num_classes].
      auxiliary_logits: the logits of the auxiliary head, of the same shape; or None.
      labels: int32 [batch].
      config: the run's configuration.
    """
    weights_by_label = class_weights.by_label(config)
    if weights_by_label and len(weights_by_label) != logits.shape[1]:
        raise ConfigError(f'--class_weights: has {len(weights_by_label)} numbers for {logits.shape[1]} classes.')

    def cross_entropy(x: tf.Tensor) -> tf.Tensor:
        # Bit-identical to `tf.losses.softmax_cross_entropy`, with a quarter of its operations.
        classes, smoothing = int(x.shape[1]), config.label_smoothing
        others = np.float32(smoothing) / np.float32(classes)
        smoothed = tf.one_hot(labels, classes, np.float32(1 - smoothing) + others, others)
        losses = tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=smoothed)[0]
        if weights_by_label:
            losses *= tf.reduce_sum(tf.one_hot(labels, classes) * tf.constant([weights_by_label]), axis=1)
        return tf.reduce_sum(losses) / tf.cast(tf.size(losses), tf.float32)

    loss = cross_entropy(logits)
    if auxiliary_logits is not None:
        loss += AUXILIARY_WEIGHT * cross_entropy(auxiliary_logits)
    weights = tf.get_collection(tf.GraphKeys.WEIGHTS)
    if not weights:
        return loss
    # Not add_n: its order of additions varies, and with it the last bits of the sum.
    return loss + config.weight_decay * tf.reduce_sum(tf.stack([tf.nn.l2_loss(weight) for weight in weights]))


def _training(
    logits: tf.Tensor,
    auxiliary_logits: Optional[tf.Tensor],
    labels: tf.Tensor,
    config: Config,
    fine_tuning: FineTuning,
) -> tf.estimator.tpu.TPUEstimatorSpec:
    loss = total_loss(logits, auxiliary_logits, labels, config)
    global_step = tf.train.get_or_create_global_step()
    # Copied before the update: reads of reference variables, such as an Estimator's global step, are not ordered.
    step = tf.cast(global_step, tf.int32)
    steps_done = step + 1
    rate = learning_rate(step, config)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies([steps_done, *updates]):
        optimizer = fine_tuning.optimizer(make_optimizer, rate)
        summation = seeding.aggregation_method(config)
        if config.precision == 'float16':
            train_op = loss_scale.minimize(optimizer, loss, global_step, summation)
            # One saver for all replicas. The default saver cannot restore a checkpoint of another precision.
            tf.get_collection_ref(tf.GraphKeys.SAVERS)[:] = [loss_scale.Saver()]
        else:
            train_op = optimizer.minimize(loss, global_step, aggregation_method=summation)
    if config.moving_average:
        with tf.control_dependencies([train_op]):
            train_op = moving_average.update_averages(config.moving_average_decay, steps_done, fine_tuning.frozen)
    return tf.estimator.tpu.TPUEstimatorSpec(
        _TRAIN,
        loss=loss,
        train_op=train_op,
        host_call=None if config.skip_host_call else host_call(replicas.mean(loss), rate, step, config),
    )


def _evaluation(
    logits: tf.Tensor, labels: tf.Tensor, config: Config, class_names: Sequence[str]
) -> tf.estimator.tpu.TPUEstimatorSpec:
    def metric_fn(labels: tf.Tensor, logits: tf.Tensor) -> Dict[str, metrics.Metric]:
        if config.display_tensors:
            with tf.control_dependencies([metrics.print_predictions(labels, logits, class_names)]):
                labels = tf.identity(labels)
        return metrics.evaluation_metrics(labels, logits)

    # TPUEstimator needs a loss and averages it over steps, padding included. The metric `cross_entropy`, without
    # padding, is the one that is recorded.
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.maximum(labels, 0), logits=logits))
    return tf.estimator.tpu.TPUEstimatorSpec(
        tf.estimator.ModeKeys.EVAL, loss=loss, eval_metrics=(metric_fn, [labels, logits])
    )


def _prediction(logits: tf.Tensor, config: Config, class_names: Sequence[str]) -> tf.estimator.tpu.TPUEstimatorSpec:
    predictions = {'classes': tf.argmax(logits, axis=1), 'probabilities': tf.nn.softmax(logits)}
    outputs = dict(predictions)
    if class_names:
        # Only in exports: a TPU returns nothing but numbers.
        outputs['class_names'] = metrics.names_of(predictions['classes'], class_names, config.num_classes)

    def scaffold_fn() -> tf.train.Scaffold:
        return tf.train.Scaffold(saver=moving_average.averaging_saver())

    return tf.estimator.tpu.TPUEstimatorSpec(
        _PREDICT,
        predictions=predictions,
        export_outputs={EXPORT_SIGNATURE: tf.estimator.export.PredictOutput(outputs)},
        scaffold_fn=scaffold_fn if config.moving_average else None,
    )
