"""The last step of preprocessing: flip, colour, and the network's range of values.

The host takes it for one image, or the device for a batch of images that were sent as bytes.
"""

from compat import tf
from preprocessing.color import add_to_channels, apply_color, scale_to_network

# The largest value of a pixel.
WHITE = 255.0
# Mean red, green and blue of ImageNet's training images, for pixels in [0, 255].
CHANNEL_MEANS = (123.68, 116.78, 103.94)


def apply_flip(image: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
    """Mirrors an image left to right if `flip`, a bool scalar; or each of a batch [images, …] by bool [images]."""
    if image.shape.ndims == 4:
        return tf.where(flip, tf.reverse(image, [2]), image)
    return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)


def subtract_mean(image: tf.Tensor) -> tf.Tensor:
    """Subtracts `CHANNEL_MEANS` from the pixels, in [0, 255], of an image or of a batch."""
    return add_to_channels(image, -tf.constant(CHANNEL_MEANS))


def scaled(kind: str, images: tf.Tensor) -> tf.Tensor:
    """Scales pixels in [0, 255], float32 [..., height, width, 3], for the network, as evaluation does."""
    return subtract_mean(images) if kind == 'vgg' else scale_to_network(images, WHITE)


def finished(kind: str, images: tf.Tensor, numbers: tf.Tensor, fast_mode: bool) -> tf.Tensor:
    """Finishes a training batch on the device, like `Preprocessing.finish` with the distortions of the images.

    The images are float32 [batch, height, width, 3], in [0, 255]; each row of the numbers, float32 [batch, numbers], is
    from `Preprocessing.pack`.
    """
    images = apply_flip(images, numbers[:, 0] > 0.5)
    if kind == 'inception':
        return apply_color(images, numbers[:, 1:], tf.constant(0), fast_mode, WHITE)
    return scaled(kind, images)
