"""The CIFAR preprocessing: resize the whole image, and in training pad it with black, crop at random and flip.

He et al., "Deep Residual Learning for Image Recognition", section 4.2.
"""

from typing import NamedTuple

from console.tensorflow_versions import tf
from preprocessing.stateless import Uniform


class Settings(NamedTuple):
    """The settings of the CIFAR preprocessing, named like the flags that set them.

    Attributes:
      height: height of the network's images, in pixels.
      width: width of the network's images, in pixels.
      crop_padding: black pixels on each side of a resized training image.
      random_flip: mirror half of the training images.
    """

    height: int
    width: int
    crop_padding: int = 4
    random_flip: bool = True


class Distortion(NamedTuple):
    """The random numbers in the preprocessing of one training image.

    Attributes:
      top: int32 scalar, the first row of the crop in the padded image, 0 to twice the padding.
      left: int32 scalar, the first column of the crop in the padded image, 0 to twice the padding.
      flip: bool scalar, whether to mirror left to right.
    """

    top: tf.Tensor
    left: tf.Tensor
    flip: tf.Tensor


def draw_distortion(padding: int = 4, random_flip: bool = True, uniform: Uniform = tf.random.uniform) -> Distortion:
    """Draws the random numbers of one training image, or of a group.

    A seed must give the same numbers in every version, so the order of the draws must not change.

    Args:
      padding: black pixels on each side of the image.
      random_flip: mirror half of the images.
      uniform: draws the numbers.
    """
    return Distortion(
        top=uniform([], 0, 2 * padding + 1, tf.int32),
        left=uniform([], 0, 2 * padding + 1, tf.int32),
        flip=uniform([]) < 0.5 if random_flip else tf.constant(False),
    )


def shift(image: tf.Tensor, top: tf.Tensor, left: tf.Tensor, padding: int) -> tf.Tensor:
    """Pads an image with black, and crops it to its size before padding.

    Args:
      image: float32 [height, width, 3], in [0, 255].
      top: int32 scalar, the first row of the crop in the padded image; `padding` for no shift.
      left: int32 scalar, the first column of the crop in the padded image; `padding` for no shift.
      padding: black pixels on each side.

    Returns:
      float32 [height, width, 3], in [0, 255].
    """
    padded = tf.pad(image, [[padding, padding], [padding, padding], [0, 0]])
    shifted = tf.slice(padded, tf.stack([top, left, 0]), image.shape)
    shifted.set_shape(image.shape)
    return shifted
