"""The images of a run on their way from the host to the device.

With `--transfer=float` the host sends finished images. With `--transfer=uint8` it sends resized images in bytes, and in
training also the few numbers of each image's distortion; the device flips the images, distorts their colour and scales
them. With the full colour distortion, the host does everything except the scaling.
"""

from typing import Any, Dict, Union

from compat import tf
from inception_v3.config import Config
from preprocessing.preprocessings import preprocessing_for

# The keys of the features of a training image sent as bytes.
IMAGES = 'images'
DISTORTION = 'distortion'

# The features that the input pipeline returns for an image or for a batch.
Features = Union[tf.Tensor, Dict[str, tf.Tensor]]

_WORD_BYTES, _BYTE_BITS = 4, 8


class Infeed:
    """Packs images on the host, and unpacks them on the device.

    Attributes:
      preprocessing: the run's preprocessing.
    """

    def __init__(self, config: Config):
        self.preprocessing = preprocessing_for(config)
        self._config = config
        self._sends_bytes = config.transfer == 'uint8'

    # ---- On the host

    def for_evaluation(self, image: tf.Tensor) -> tf.Tensor:
        """The data to send for an evaluation image, float32 [height, width, 3] in [0, 255], cropped and resized."""
        return self._to_bytes(image) if self._sends_bytes else self._to_floats(self.preprocessing.finish(image))

    def for_training(self, image: tf.Tensor, distortion: Any) -> Features:
        """The data to send for a training image, as for `for_evaluation`, with its distortion from `draw`."""
        if self._sends_bytes and self.preprocessing.finishes_bytes:
            return {IMAGES: self._to_bytes(image), DISTORTION: self.preprocessing.pack(distortion)}
        finished = self.preprocessing.finish(image, distortion)
        return self._to_bytes(self.preprocessing.unscaled(finished)) if self._sends_bytes else self._to_floats(finished)

    def as_evaluated(self, image: tf.Tensor) -> tf.Tensor:
        """The network's float32 input for an image as for `for_evaluation`, with the same rounding."""
        return self.preprocessing.finish(tf.floor(image + 0.5) if self._sends_bytes else image)

    def _to_floats(self, image: tf.Tensor) -> tf.Tensor:
        return tf.cast(image, tf.as_dtype(self._config.precision))

    def _to_bytes(self, image: tf.Tensor) -> tf.Tensor:
        """Rounds pixels to bytes: uint8 [height, width, 3], or int32 [words] for a TPU."""
        image = tf.cast(image + 0.5, tf.uint8)
        if not self._config.use_tpu:
            return image
        # A TPU's infeed does not accept bytes; four bytes in an int32 word take the same space.
        missing = -image.shape.num_elements() % _WORD_BYTES
        return tf.bitcast(tf.reshape(tf.pad(tf.reshape(image, [-1]), [[0, missing]]), [-1, _WORD_BYTES]), tf.int32)

    # ---- On the device

    def received(self, features: Features, is_batch_last: bool) -> tf.Tensor:
        """The finished images of a batch: [batch, height, width, 3], in `--precision`, or float32 if sent as bytes.

        The features are a batch of the data that the host sends. With `is_batch_last`, the batch is the last axis of
        the images, not the first.
        """
        images = features[IMAGES] if isinstance(features, dict) else features
        if is_batch_last:
            images = tf.transpose(images, [images.shape.ndims - 1, *range(images.shape.ndims - 1)])
        if images.dtype == tf.int32:
            images = self._from_words(images)
        elif images.dtype != tf.uint8:
            return images
        images = tf.cast(images, tf.float32)
        if isinstance(features, dict):
            return self.preprocessing.finish(images, self.preprocessing.unpack(features[DISTORTION]))
        return self.preprocessing.finish(images)

    def _from_words(self, words: tf.Tensor) -> tf.Tensor:
        """Unpacks int32 [batch, words] to int32 [batch, height, width, 3], in [0, 255]."""
        shape = [-1, self._config.height, self._config.width, 3]
        shifts = tf.range(_WORD_BYTES) * _BYTE_BITS
        values = tf.bitwise.bitwise_and(tf.bitwise.right_shift(words[:, :, tf.newaxis], shifts), 0xFF)
        values = tf.reshape(values, [-1, words.shape[1] * _WORD_BYTES])
        return tf.reshape(values[:, : shape[1] * shape[2] * 3], shape)
