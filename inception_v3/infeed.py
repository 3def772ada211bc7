"""The data that the host sends to the device for an image, and the finishing of that data on the device.

With `--transfer=float` the host sends finished images. With `--transfer=uint8` it sends resized images in bytes, and in
training also the few numbers of each image's distortion; the device flips the images, distorts their colour and scales
them. With the full colour distortion, the host does all but the scaling.
"""

from typing import Any, Dict, Union

from console.tensorflow_versions import tf
from inception_v3.config import Config
from preprocessing.preprocessings import preprocessing_for

# The keys of the features of a training image sent as bytes.
IMAGES = 'images'
DISTORTION = 'distortion'

# The features that the input pipeline returns for an image or for a batch.
Features = Union[tf.Tensor, Dict[str, tf.Tensor]]

_WORD_BYTES = 4
_BYTE_BITS = 8


def for_evaluation(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Returns the data to send to the device for an evaluation image.

    Args:
      image: float32 [height, width, 3] in [0, 255], cropped and resized.
      config: of the run.
    """
    if config.transfer == 'uint8':
        return _to_bytes(image, config)
    return _to_floats(preprocessing_for(config).finish(image), config)


def for_training(image: tf.Tensor, distortion: Any, config: Config) -> Features:
    """Returns the data to send to the device for a training image.

    Args:
      image: float32 [height, width, 3] in [0, 255], cropped and resized.
      distortion: as `Preprocessing.draw` draws it for the image.
      config: of the run.
    """
    preprocessing = preprocessing_for(config)
    if config.transfer == 'uint8' and preprocessing.finishes_bytes:
        return {IMAGES: _to_bytes(image, config), DISTORTION: preprocessing.pack(distortion)}
    finished = preprocessing.finish(image, distortion)
    if config.transfer == 'uint8':
        return _to_bytes(preprocessing.unscaled(finished), config)
    return _to_floats(finished, config)


def as_evaluated(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Returns the network's input for an image, with the same rounding as in evaluation.

    Args:
      image: float32 [height, width, 3] in [0, 255], cropped and resized.
      config: of the run.

    Returns:
      float32 [height, width, 3].
    """
    return preprocessing_for(config).finish(tf.floor(image + 0.5) if config.transfer == 'uint8' else image)


def received(features: Features, is_batch_last: bool, config: Config) -> tf.Tensor:
    """Returns the finished images of a batch, on the device.

    Args:
      features: a batch of the data from `for_evaluation` or `for_training`.
      is_batch_last: the batch is the last axis of the images, not the first.
      config: of the run.

    Returns:
      [batch, height, width, 3], of the type of `--precision`, or float32 from bytes.
    """
    images = features[IMAGES] if isinstance(features, dict) else features
    if is_batch_last:
        images = tf.transpose(images, [images.shape.ndims - 1, *range(images.shape.ndims - 1)])
    if images.dtype == tf.int32:
        images = _from_words(images, config)
    elif images.dtype != tf.uint8:
        return images
    images = tf.cast(images, tf.float32)
    preprocessing = preprocessing_for(config)
    if isinstance(features, dict):
        return preprocessing.finish_packed(images, features[DISTORTION])
    return preprocessing.finish(images)


def _to_floats(image: tf.Tensor, config: Config) -> tf.Tensor:
    return tf.cast(image, tf.as_dtype(config.precision))


def _to_bytes(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Rounds pixels to bytes: uint8 [height, width, 3], or int32 [words] for a TPU."""
    image = tf.cast(image + 0.5, tf.uint8)
    if not config.use_tpu:
        return image
    # A TPU's infeed takes no bytes; four of them in an int32 word take the same space.
    missing = -image.shape.num_elements() % _WORD_BYTES
    return tf.bitcast(tf.reshape(tf.pad(tf.reshape(image, [-1]), [[0, missing]]), [-1, _WORD_BYTES]), tf.int32)


def _from_words(words: tf.Tensor, config: Config) -> tf.Tensor:
    """Unpacks int32 [batch, words] to int32 [batch, height, width, 3], in [0, 255]."""
    shifts = tf.range(_WORD_BYTES) * _BYTE_BITS
    values = tf.bitwise.bitwise_and(tf.bitwise.right_shift(words[:, :, tf.newaxis], shifts), 0xFF)
    values = tf.reshape(values, [-1, words.shape[1] * _WORD_BYTES])
    return tf.reshape(values[:, : config.height * config.width * 3], [-1, config.height, config.width, 3])
