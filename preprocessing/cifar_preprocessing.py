"""The CIFAR preprocessing: resize the whole image, and in training pad it with black, crop at random and flip.

He et al., "Deep Residual Learning for Image Recognition", section 4.2.
"""

from typing import Any, Dict, List, NamedTuple, Optional

from compat import tf
from preprocessing.decoding import Crop
from preprocessing.stateless import Uniform
from preprocessing.steps import BILINEAR, Preprocessing, apply_resize


class Distortion(NamedTuple):
    """The random numbers of one training image."""

    # int32 scalars, the first row and column of the crop in the padded image, 0 to twice the padding.
    top: tf.Tensor
    left: tf.Tensor
    flip: tf.Tensor  # bool scalar, whether to mirror left to right.


class Window(NamedTuple):
    """The whole image, and the position of the crop in the padded image."""

    crop: Crop
    top: tf.Tensor
    left: tf.Tensor


class CifarPreprocessing(Preprocessing):
    """The CIFAR preprocessing; finished images are in [-1, 1]."""

    def draw(self, image_shape: Any, bbox: Any, uniform: Uniform = tf.random.uniform) -> Distortion:
        """Draws the position of the crop and the flip."""
        positions = 2 * self.settings.crop_padding + 1
        return Distortion(
            top=uniform([], 0, positions, tf.int32),
            left=uniform([], 0, positions, tf.int32),
            flip=uniform([]) < 0.5 if self.settings.random_flip else tf.constant(False),
        )

    def crop(self, image_shape: tf.Tensor, distortion: Optional[Distortion] = None) -> Window:
        """The whole image, with the drawn shift, or unshifted in evaluation."""
        height, width = image_shape[..., 0], image_shape[..., 1]
        whole = Crop(tf.zeros_like(height), tf.zeros_like(width), height, width)
        if distortion is None:
            unshifted = tf.constant(self.settings.crop_padding)
            return Window(whole, unshifted, unshifted)
        return Window(whole, distortion.top, distortion.left)

    def resize(self, pixels: tf.Tensor, window: Window) -> tf.Tensor:
        """Resizes the image bilinearly, and shifts it."""
        resized = apply_resize(pixels, self.settings.height, self.settings.width, BILINEAR)
        return shift(resized, window.top, window.left, self.settings.crop_padding)

    def steps_of_evaluation(self) -> List[Dict[str, Any]]:
        """The resizing."""
        return [{'resize': [self.settings.height, self.settings.width]}]


def shift(image: tf.Tensor, top: tf.Tensor, left: tf.Tensor, padding: int) -> tf.Tensor:
    """Pads an image [height, width, 3] with black on each side, and crops it at a position to its original size."""
    padded = tf.pad(image, [[padding, padding], [padding, padding], [0, 0]])
    shifted = tf.slice(padded, tf.stack([top, left, 0]), image.shape)
    shifted.set_shape(image.shape)
    return shifted
