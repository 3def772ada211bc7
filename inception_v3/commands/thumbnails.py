"""Small JPEG files of images, for the pages of commands."""

import numpy as np

from console.tensorflow_versions import tf

# Pixels of the longer side: sharp on displays with two pixels per CSS pixel.
_SIDE = 320
_JPEG_QUALITY = 80


class Thumbnails:
    """Makes small JPEG files of whole images. Any thread may call it."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._pixels = tf.placeholder(tf.uint8, [None, None, 3])
            sides = tf.cast(tf.shape(self._pixels)[:2], tf.float32)
            size = tf.cast(tf.math.ceil(sides * tf.minimum(1.0, _SIDE / tf.reduce_max(sides))), tf.int32)
            small = tf.image.resize_area(self._pixels[tf.newaxis], size)[0]
            self._thumbnail = tf.image.encode_jpeg(tf.cast(small + 0.5, tf.uint8), quality=_JPEG_QUALITY)
            self._session = tf.Session(graph=graph)

    def make(self, pixels: np.ndarray) -> bytes:
        """The thumbnail of an image, uint8 [height, width, 3]."""
        return self._session.run(self._thumbnail, {self._pixels: pixels})

    def close(self) -> None:
        """Releases TensorFlow's resources."""
        self._session.close()
