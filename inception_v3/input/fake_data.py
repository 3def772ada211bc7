"""Generated images for `--use_data=fake`: they replace storage, decoding, crop and resize."""

from typing import Tuple

from compat import tf
from data import order
from inception_v3.config import Config
from inception_v3.input.infeed import Features, Infeed
from preprocessing.stateless import uniform_of
from preprocessing.steps import whole_image_box


@tf.autograph.experimental.do_not_convert
def fake_images(
    infeed: Infeed,
    is_training: bool,
    config: Config,
    step: tf.Tensor,
    parallel_calls: int,
    host: int = 0,
    hosts: int = 1,
) -> tf.data.Dataset:
    """Generates a different random image for each position in an epoch; the labels cycle through all classes.

    Training repeats forever, distorts the images, and skips those of `step` completed steps; each host has consecutive
    positions of every global batch. Returns a data set of (features, label), as does the preprocessing phase of
    `InputPipeline`.
    """
    count = config.num_train_images if is_training else config.eval_images

    def generate(number: tf.Tensor) -> Tuple[Features, tf.Tensor]:
        epoch, index = number // count, number % count
        seed = tf.stack([index, tf.constant(0, tf.int64)])
        pixels = tf.random.stateless_uniform([config.height, config.width, 3], seed, maxval=255.0)
        label = tf.cast(index % config.num_classes, tf.int32)
        if not is_training:
            return infeed.for_evaluation(pixels), label
        key = None if config.seed is None else order.key_of(config.seed, epoch, index)
        shape = tf.constant([config.height, config.width, 3])
        distortion = infeed.preprocessing.draw(shape, whole_image_box(), uniform_of(key))
        return infeed.for_training(pixels, distortion), label

    def of_batch(batch: tf.Tensor) -> tf.data.Dataset:
        first = batch * config.train_batch_size + host * share
        return tf.data.Dataset.range(first, first + share)

    share = config.train_batch_size // hosts
    if is_training:
        numbers = tf.data.Dataset.range(step, tf.int64.max).flat_map(of_batch)
    else:
        numbers = tf.data.Dataset.range(host, count, hosts)

    def scoped(number: tf.Tensor) -> Tuple[Features, tf.Tensor]:
        # A profile finds the operations of preprocessing by their scope.
        with tf.name_scope('preprocessing'):
            return generate(number)

    return numbers.map(scoped, parallel_calls)
