"""The data that the host sends to the device for an image; `device_images` makes finished images of it.

With `--transfer=float` the host sends finished images. With `--transfer=uint8` it sends resized images in bytes, and in
training also the few numbers of each image's distortion; the device flips the images, distorts their colour and scales
them. With the full colour distortion, the host does all but the scaling.
"""

from typing import Any

from compat import tf
from inception_v3.config import Config
from inception_v3.input.device_images import DISTORTION, IMAGES, WORD_BYTES, Features
from preprocessing.preprocessings import preprocessing_for


def for_evaluation(image: tf.Tensor, config: Config) -> tf.Tensor:
    """The data to send for an evaluation image, float32 [height, width, 3] in [0, 255], cropped and resized."""
    if config.transfer == 'uint8':
        return _to_bytes(image, config)
    return _to_floats(preprocessing_for(config).finish(image), config)


def for_training(image: tf.Tensor, distortion: Any, config: Config) -> Features:
    """The data to send for a training image, as for `for_evaluation`, with its distortion from `Preprocessing.draw`."""
    preprocessing = preprocessing_for(config)
    if config.transfer == 'uint8' and preprocessing.finishes_bytes:
        return {IMAGES: _to_bytes(image, config), DISTORTION: preprocessing.pack(distortion)}
    finished = preprocessing.finish(image, distortion)
    if config.transfer == 'uint8':
        return _to_bytes(preprocessing.unscaled(finished), config)
    return _to_floats(finished, config)


def as_evaluated(image: tf.Tensor, config: Config) -> tf.Tensor:
    """The network's input for an image as for `for_evaluation`, with the same rounding: float32 [height, width, 3]."""
    return preprocessing_for(config).finish(tf.floor(image + 0.5) if config.transfer == 'uint8' else image)


def _to_floats(image: tf.Tensor, config: Config) -> tf.Tensor:
    return tf.cast(image, tf.as_dtype(config.precision))


def _to_bytes(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Rounds pixels to bytes: uint8 [height, width, 3], or int32 [words] for a TPU."""
    image = tf.cast(image + 0.5, tf.uint8)
    if not config.use_tpu:
        return image
    # A TPU's infeed takes no bytes; four of them in an int32 word take the same space.
    missing = -image.shape.num_elements() % WORD_BYTES
    return tf.bitcast(tf.reshape(tf.pad(tf.reshape(image, [-1]), [[0, missing]]), [-1, WORD_BYTES]), tf.int32)
