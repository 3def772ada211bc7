"""The images of a batch on the device, made of the data that the host sent: `infeed` says which."""

from typing import Dict, Union

from compat import tf
from inception_v3.config import Config
from preprocessing import finishing

# The keys of the features of a training image sent as bytes.
IMAGES = 'images'
DISTORTION = 'distortion'

# The features that the input pipeline returns for an image or for a batch.
Features = Union[tf.Tensor, Dict[str, tf.Tensor]]

WORD_BYTES = 4
_BYTE_BITS = 8


def received(features: Features, is_batch_last: bool, config: Config) -> tf.Tensor:
    """The finished images of a batch on the device: [batch, height, width, 3], of `--precision`, or float32 from bytes.

    The features are a batch of the data from `infeed`. `is_batch_last` says that the batch is the last axis of the
    images, not the first.
    """
    images = features[IMAGES] if isinstance(features, dict) else features
    if is_batch_last:
        images = tf.transpose(images, [images.shape.ndims - 1, *range(images.shape.ndims - 1)])
    if images.dtype == tf.int32:
        images = _from_words(images, config)
    elif images.dtype != tf.uint8:
        return images
    images = tf.cast(images, tf.float32)
    if isinstance(features, dict):
        return finishing.finished(config.preprocessing, images, features[DISTORTION], config.fast_mode)
    return finishing.scaled(config.preprocessing, images)


def _from_words(words: tf.Tensor, config: Config) -> tf.Tensor:
    """Unpacks int32 [batch, words] to int32 [batch, height, width, 3], in [0, 255]."""
    shifts = tf.range(WORD_BYTES) * _BYTE_BITS
    values = tf.bitwise.bitwise_and(tf.bitwise.right_shift(words[:, :, tf.newaxis], shifts), 0xFF)
    values = tf.reshape(values, [-1, words.shape[1] * WORD_BYTES])
    return tf.reshape(values[:, : config.height * config.width * 3], [-1, config.height, config.width, 3])
