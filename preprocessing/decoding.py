"""Encoded images to pixels."""

import tensorflow as tf


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG or one-frame GIF image to RGB.

    Args:
      encoded: a string scalar, the bytes of the file.

    Returns:
      A uint8 tensor of shape [height, width, 3]. Grey images have three equal channels; transparency is
      dropped.

    Raises:
      tf.errors.InvalidArgumentError: when run on bytes that cannot be decoded, or are cut short.
    """
    # This operation looks at the first bytes and takes all three formats, in spite of its name.
    return tf.image.decode_jpeg(encoded, channels=3)
