"""What the host sends to the device for an image, and what the device makes of it.

With `--transfer=float` that is the finished image. With `--transfer=uint8` it is the resized image in bytes, and in
training the few numbers of its distortion: flip, colour and scaling are left to the device.
"""

from typing import Dict, Union

import tensorflow as tf

from inception_v3.config import Config
from preprocessing import inception_preprocessing, vgg_preprocessing
from preprocessing.inception_preprocessing import Color, FastColor, FullColor, apply_color

# The parts of what is sent for a training image as bytes.
IMAGES = 'images'
DISTORTION = 'distortion'

# What the input pipeline gives for an image, or for a batch of them.
Features = Union[tf.Tensor, Dict[str, tf.Tensor]]
Distortion = Union[inception_preprocessing.Distortion, vgg_preprocessing.Distortion]

_WHITE = 255.0
_BYTES_OF_A_WORD = 4
_BITS_OF_A_BYTE = 8


def for_evaluation(image: tf.Tensor, config: Config) -> tf.Tensor:
    """What is sent for an image of an evaluation, float32 [height, width, 3] in [0, 255] after crop and resizing."""
    return _as_bytes(image, config) if config.transfer == 'uint8' else _as_floats(_finish(image, config), config)


def for_training(image: tf.Tensor, distortion: Distortion, config: Config) -> Features:
    """What is sent for a training image.

    Args:
      image: float32 [height, width, 3] in [0, 255], after crop and resizing.
      distortion: what was drawn for it.
      config: of the run.
    """
    if config.transfer == 'uint8':
        return {IMAGES: _as_bytes(image, config), DISTORTION: _numbers_of(distortion)}
    image = inception_preprocessing.apply_flip(image, distortion.flip)
    if isinstance(distortion, vgg_preprocessing.Distortion):
        return _as_floats(_finish(image, config), config)
    color, ordering = distortion.color, distortion.color_ordering
    return _as_floats(apply_color(image, color, ordering, config.fast_mode, _WHITE), config)


def as_evaluated(image: tf.Tensor, config: Config) -> tf.Tensor:
    """What the network of an evaluation in float32 gets to see of an image as for `for_evaluation`."""
    return _finish(tf.floor(image + 0.5) if config.transfer == 'uint8' else image, config)


def received(features: Features, is_batch_last: bool, config: Config) -> tf.Tensor:
    """The finished images of a batch, on the device.

    Args:
      features: a batch of what `for_evaluation` or `for_training` gave.
      is_batch_last: the images' last axis is that of the batch, not the first.
      config: of the run.

    Returns:
      float32 or bfloat16 [batch, height, width, 3].
    """
    images = features[IMAGES] if isinstance(features, dict) else features
    if is_batch_last:
        images = tf.transpose(images, [images.shape.ndims - 1, *range(images.shape.ndims - 1)])
    if images.dtype == tf.int32:
        images = _from_words(images, config)
    elif images.dtype != tf.uint8:
        return images
    images = tf.cast(images, tf.float32)
    if not isinstance(features, dict):
        return _finish(images, config)
    flip, *color = tf.unstack(features[DISTORTION], axis=1)
    images = inception_preprocessing.apply_flip(images, flip > 0.5)
    if config.preprocessing == 'vgg':
        return _finish(images, config)
    # Fast mode, without which nothing is sent as bytes, has one order, and neither hue nor contrast.
    drawn: Color = FastColor(*color) if config.use_fast_color_distort else FullColor(color[0], color[1], 0.0, 1.0)
    return apply_color(images, drawn, tf.constant(0), config.fast_mode, _WHITE)


def pixels_of(images: tf.Tensor, config: Config) -> tf.Tensor:
    """What people see of finished images, [..., 3], as `received` returns them: uint8, the nearest whole numbers."""
    images = tf.cast(images, tf.float32)
    if config.preprocessing == 'vgg':
        pixels = images + vgg_preprocessing.CHANNEL_MEANS
    else:
        pixels = (images + 1.0) * (_WHITE / 2)
    return tf.cast(tf.clip_by_value(pixels, 0.0, _WHITE) + 0.5, tf.uint8)


def _as_floats(image: tf.Tensor, config: Config) -> tf.Tensor:
    return tf.cast(image, tf.bfloat16 if config.precision == 'bfloat16' else tf.float32)


def _as_bytes(image: tf.Tensor, config: Config) -> tf.Tensor:
    """To the nearest whole numbers: uint8 [height, width, 3], or int32 words of four for a TPU's infeed."""
    image = tf.cast(image + 0.5, tf.uint8)
    if not config.use_tpu:
        return image
    # A TPU takes no bytes, and four in a word are as few.
    missing = -image.shape.num_elements() % _BYTES_OF_A_WORD
    return tf.bitcast(tf.reshape(tf.pad(tf.reshape(image, [-1]), [[0, missing]]), [-1, _BYTES_OF_A_WORD]), tf.int32)


def _from_words(words: tf.Tensor, config: Config) -> tf.Tensor:
    """[batch, words] to [batch, height, width, 3], with values of 0 to 255."""
    shifts = tf.range(_BYTES_OF_A_WORD) * _BITS_OF_A_BYTE
    values = tf.bitwise.bitwise_and(tf.bitwise.right_shift(words[:, :, tf.newaxis], shifts), 0xFF)
    values = tf.reshape(values, [-1, words.shape[1] * _BYTES_OF_A_WORD])
    return tf.reshape(values[:, : config.height * config.width * 3], [-1, config.height, config.width, 3])


def _finish(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Scales an image, or several, for the network."""
    if config.preprocessing == 'vgg':
        return vgg_preprocessing.subtract_mean(image)
    return inception_preprocessing.scale_to_network(image, _WHITE)


def _numbers_of(distortion: Distortion) -> tf.Tensor:
    """What the device has to know, float32 [numbers]: the flip, and the three of a fast colour or two of a full."""
    numbers = [tf.cast(distortion.flip, tf.float32)]
    if isinstance(distortion, inception_preprocessing.Distortion):
        color = distortion.color
        numbers += color if isinstance(color, FastColor) else [color.brightness, color.saturation]
    return tf.stack(numbers)
