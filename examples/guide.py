"""Inception v3 on TPUEstimator, on one page: input pipeline, model function, averages, and training in cycles.

It is the program of the "Advanced Guide to Inception v3 on Cloud TPU" (Google Cloud, undated; docs/map.md).

    ./run python -m examples.guide

trains the digits in `runs/guide`, and evaluates them with averaged weights every 250 steps. The program itself,
`inception_v3.main`, does the same, and adds flags, checks, resumption, exports and reports. With `--seed`, both read
the records in the same order, and have the same metrics and, to the bit, the same weights: checked by
`tests/examples/test_guide.py` after ten steps, for a network of one convolution with an auxiliary head, and for each
optimizer alone.
"""

import argparse
import functools
import os
import sys
from typing import Any, Callable, Dict, Sequence, Tuple

from compat import tf
from data import order, records, tf_example
from inception_v3 import metrics, seeding
from inception_v3.batch_norm import batch_norm_for
from inception_v3.config import PADDING_LABEL, Config
from inception_v3.learning_rate import learning_rate
from inception_v3.networks import layers
from inception_v3.networks.inception_v3 import inception_v3
from preprocessing.decoding import image_shape
from preprocessing.preprocessings import preprocessing_for
from preprocessing.stateless import uniform_of

# The documented program with a network and images that suit digits, as `--preset=digits` has them.
CONFIG = Config(
    use_tpu=False,
    data_dir='runs/digits_data',
    model_dir='runs/guide',
    num_train_images=1438,
    num_eval_images=359,
    num_classes=11,
    train_batch_size=32,
    eval_batch_size=128,
    height=75,
    width=75,
    random_flip=False,
    crop_area_min=0.7,
    crop_aspect_ratio_max=1.2,
    depth_multiplier=0.25,
    auxiliary_head=False,
    cb_distortion_range=0.0,
    cr_distortion_range=0.0,
    batch_norm_decay=0.95,
    learning_rate=0.06,
    use_learning_rate_warmup=True,
    cold_epochs=1,
    warmup_epochs=2,
    moving_average_decay=0.98,
    train_steps=750,
    train_steps_per_eval=250,
)

# The guide's three optimizers, the last with decay 0.9, momentum 0.9 and epsilon 1.
OPTIMIZERS: Dict[str, Tuple[str, Callable[[tf.Tensor], tf.train.Optimizer]]] = {
    'sgd': ('SGD', lambda rate: tf.train.GradientDescentOptimizer(rate)),
    'momentum': ('Momentum', lambda rate: tf.train.MomentumOptimizer(rate, 0.9)),
    'RMS': ('RMS', lambda rate: tf.train.RMSPropOptimizer(rate, 0.9, 0.9, 1.0)),
}

# AutoGraph has nothing to convert here, and takes seconds to find that out.
no_autograph = tf.autograph.experimental.do_not_convert

TRAIN, EVAL = tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.EVAL


class InputPipeline:
    """The `input_fn`, in three phases: shuffled, repeated and distorted training records, or each validation record."""

    def __init__(self, is_training: bool, config: Config):
        self._is_training = is_training
        self._config = config
        self._preprocessing = preprocessing_for(config)

    def __call__(self, params: Dict[str, Any]) -> tf.data.Dataset:
        """A data set of (float32 [batch, height, width, 3], int32 [batch])."""
        config, host, hosts = self._config, 0, 1
        if 'context' in params:
            # On a TPU, each host reads its own share of the files.
            _, host, hosts, _ = params['context'].current_input_fn_deployment()

        # Phase 1, storage: files to records.
        read = self.storage if config.seed is None else self.ordered_storage
        dataset = read(host, hosts)

        # Phase 2, preprocessing: many images at a time.
        dataset = dataset.map(self._preprocess, config.num_parallel_calls)

        # Phase 3, transfer: whole batches, prepared while a step runs.
        dataset = dataset.batch(params['batch_size'], drop_remainder=self._is_training)
        if not self._is_training:
            dataset = dataset.map(functools.partial(self._padded, params['batch_size']))
        return dataset.prefetch(2)

    @no_autograph
    def storage(self, host: int = 0, hosts: int = 1) -> tf.data.Dataset:
        """Reads records: lists the files, shuffles and repeats them, reads several at a time, shuffles the records."""
        config = self._config
        pattern = os.path.join(str(config.data_dir), 'train-*' if self._is_training else 'validation-*')
        files = tf.data.Dataset.list_files(pattern, shuffle=False).shard(hosts, host)
        if self._is_training and config.initial_shuffle_buffer_size > 0:
            files = files.shuffle(config.initial_shuffle_buffer_size)
        if self._is_training:
            files = files.repeat()
        # Sloppy: does not wait for a slow file, so the records come in no fixed order.
        interleave = tf.data.experimental.parallel_interleave(self._read, config.num_files_infeed, sloppy=True)
        dataset = files.apply(interleave)
        if config.followup_shuffle_buffer_size > 0:
            dataset = dataset.shuffle(config.followup_shuffle_buffer_size)
        return dataset

    @no_autograph
    def ordered_storage(self, host: int = 0, hosts: int = 1) -> tf.data.Dataset:
        """Reads records in the order that follows from the seed; in training, each with the key of its distortion."""
        config = self._config
        if not self._is_training:
            return self._read(records.find_shards(config.data_dir, records.VALIDATION)[host::hosts])
        paths = records.find_shards(config.data_dir, records.TRAIN)
        files = order.files_of(paths, config.source.contents(paths))
        assert config.seed is not None
        return order.ordered(
            files,
            lambda path, size: self._read(path),
            config.seed,
            # Where training resumes: the restored step is read when the pipeline starts.
            tf.cast(tf.train.get_global_step(), tf.int64),
            order.Share(config.train_batch_size, host, hosts),
            config.initial_shuffle_buffer_size,
            config.followup_shuffle_buffer_size,
        )

    def _read(self, path: Any) -> tf.data.Dataset:
        return records.as_records(tf.data.TFRecordDataset(path, buffer_size=self._config.prefetch_dataset_buffer_size))

    @no_autograph
    def _preprocess(self, record: records.Record) -> Tuple[tf.Tensor, tf.Tensor]:
        with_boxes = self._is_training and self._config.use_annotated_bbox
        encoded, label, boxes = tf_example.parse(record.serialized, with_boxes)
        shape, distortion = image_shape(encoded), None
        if self._is_training:
            distortion = self._preprocessing.draw(shape, boxes, uniform_of(record.seed))
        resized = self._preprocessing.resize_encoded(encoded, shape, distortion)
        return self._preprocessing.finish(resized, distortion), tf.cast(label, tf.int32)

    @no_autograph
    def _padded(self, size: int, images: tf.Tensor, labels: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        """Fills the last batch up; the metrics ignore images with the padding label.

        The printed program drops the rest instead: 848 of 50,000 images in batches of 1,024.
        """
        missing = size - tf.shape(labels)[0]
        images = tf.pad(images, [[0, missing], [0, 0], [0, 0], [0, 0]])
        labels = tf.pad(labels, [[0, missing]], constant_values=PADDING_LABEL)
        return tf.reshape(images, [size, *images.shape[1:]]), tf.reshape(labels, [size])


def model_fn(
    features: tf.Tensor, labels: tf.Tensor, mode: str, params: Dict[str, Any]
) -> tf.estimator.tpu.TPUEstimatorSpec:
    """The graph of a training or an evaluation step, of float32 [batch, height, width, 3] and int32 [batch]."""
    config: Config = params['config']
    with tf.variable_scope(tf.get_variable_scope(), use_resource=True, custom_getter=seeding.variable_getter(config)):
        logits, auxiliary_logits = inception_v3(
            features,
            config.num_classes,
            mode == TRAIN,
            conv=layers.conv_for(tf.float32, not config.use_tpu),
            norm=batch_norm_for(config, mode == TRAIN),
            layout=layers.NHWC,
            dropout=seeding.dropout_for(config),
            depth_multiplier=config.depth_multiplier,
            # The head pools a map of 5 x 5 pixels, which smaller images do not have.
            auxiliary_head=config.auxiliary_head and min(config.height, config.width) >= 107,
        )
        if mode == EVAL:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.maximum(labels, 0), logits=logits)
            )
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode, loss=loss, eval_metrics=(metrics.evaluation_metrics, [labels, logits])
            )

        # Loss: smoothed cross-entropy, 0.4 times that of the auxiliary head, and weight decay.
        one_hot = tf.one_hot(labels, config.num_classes)
        smoothing = config.label_smoothing
        loss = tf.losses.softmax_cross_entropy(one_hot, logits, label_smoothing=smoothing)
        if auxiliary_logits is not None:
            loss += 0.4 * tf.losses.softmax_cross_entropy(one_hot, auxiliary_logits, label_smoothing=smoothing)
        decays = [tf.nn.l2_loss(weight) for weight in tf.get_collection(tf.GraphKeys.WEIGHTS)]
        loss += config.weight_decay * tf.reduce_sum(tf.stack(decays))

        # The rate decays, after a warm-up: `inception_v3/learning_rate.py`. On a TPU, gradients are averaged over the
        # cores.
        global_step = tf.train.get_or_create_global_step()
        step = tf.cast(global_step, tf.int32)
        steps_done = step + 1
        name, make_optimizer = OPTIMIZERS[config.optimizer]
        tf.logging.info('Using %s optimizer', name)
        optimizer = make_optimizer(learning_rate(step, config))
        if config.use_tpu:
            optimizer = tf.tpu.CrossShardOptimizer(optimizer)
        # The moving statistics of batch normalization are updated with the weights.
        with tf.control_dependencies([steps_done, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]):
            train_op = optimizer.minimize(loss, global_step, aggregation_method=seeding.aggregation_method(config))

        # Averages of the weights, which follow them closely in the first steps.
        averages = tf.train.ExponentialMovingAverage(config.moving_average_decay, num_updates=steps_done)
        averaged = dict.fromkeys([*tf.trainable_variables(), *tf.moving_average_variables()])
        with tf.control_dependencies([train_op]):
            return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=averages.apply([*averaged]))


class LoadEMAHook(tf.estimator.SessionRunHook):
    """Evaluates the averages: replaces the weights by the averages in the newest checkpoint of `model_dir`."""

    def __init__(self, model_dir: str):
        self._model_dir = model_dir

    def begin(self) -> None:
        """Adds the restore operations to the graph."""
        self._saver = tf.train.Saver(tf.train.ExponentialMovingAverage(0.0).variables_to_restore())

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """Restores the averages, after the session has restored the weights."""
        tf.logging.info('Reloading EMA...')
        self._saver.restore(session, tf.train.latest_checkpoint(self._model_dir))


def run(config: Config) -> Dict[str, float]:
    """Trains and evaluates in cycles, from the newest checkpoint on; returns the metrics of the last evaluation."""
    tpu = tf.estimator.tpu
    estimator = tpu.TPUEstimator(
        model_fn=model_fn,
        use_tpu=config.use_tpu,
        train_batch_size=config.train_batch_size,
        eval_batch_size=config.eval_batch_size,
        params={'config': config},
        config=tpu.RunConfig(
            master=config.master,
            model_dir=config.model_dir,
            save_checkpoints_secs=config.save_checkpoints_secs,
            session_config=seeding.session_config(config),
            tpu_config=tpu.TPUConfig(
                iterations_per_loop=config.iterations,
                per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
    )
    checkpoint = tf.train.latest_checkpoint(config.model_dir)
    step = int(tf.train.load_variable(checkpoint, 'global_step')) if checkpoint else 0
    while True:
        cycle = step // config.train_steps_per_eval
        # The last cycle may be shorter. The printed program leaves it out: 1,000 of 213,000 steps, at 2,000 in a cycle.
        step = min(step + config.train_steps_per_eval, config.train_steps)
        tf.logging.info('Starting training cycle %d.', cycle)
        estimator.train(InputPipeline(is_training=True, config=config), max_steps=step)
        tf.logging.info('Starting evaluation cycle %d.', cycle)
        found = estimator.evaluate(
            InputPipeline(is_training=False, config=config), hooks=[LoadEMAHook(str(config.model_dir))]
        )
        tf.logging.info('Evaluation results: %s', found)
        if step == config.train_steps:
            return found


def main(argv: Sequence[str]) -> None:
    """Runs a command line."""
    from tools.datasets import digits

    parser = argparse.ArgumentParser(prog='python -m examples.guide', description=__doc__)
    parser.add_argument('--model_dir', default=CONFIG.model_dir, help='folder of the checkpoints (default %(default)s)')
    parser.add_argument('--train_steps', type=int, default=CONFIG.train_steps, help='steps (default %(default)s)')
    parser.add_argument('--optimizer', choices=[*OPTIMIZERS], default=CONFIG.optimizer, help='(default %(default)s)')
    parser.add_argument('--seed', type=int, help='of initial weights, records and distortions; none by default')
    arguments = parser.parse_args(argv)
    tf.logging.set_verbosity(tf.logging.INFO)
    digits.build_if_missing(CONFIG.data_dir)
    run(Config(**{**vars(CONFIG), **vars(arguments)}))


if __name__ == '__main__':
    main(sys.argv[1:])
