"""A network and a preprocessing as a developer would add them: each is one entry in its table."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from compat import tf
from compat.deferred import deferred
from inception_v3.networks import layers
from inception_v3.networks.registry import Network
from preprocessing.decoding import Crop
from preprocessing.preprocessings import Kind
from preprocessing.stateless import Uniform
from preprocessing.steps import BILINEAR, Flip, Preprocessing, apply_resize

NETWORK = Network(deferred('tests.support.additions:mean_network'), frozenset({'dropout'}), size=16, min_size=8)
PREPROCESSING = Kind(deferred('tests.support.additions:UpperHalf'), frozenset({'crop_padding'}))


def mean_network(
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    dropout: layers.Dropout = layers.dropout,
    layout: layers.Layout = layers.NHWC,
) -> Tuple[tf.Tensor, Optional[tf.Tensor]]:
    """A classifier of the mean colour."""
    net = dropout(tf.reduce_mean(images, layout.pixels, keepdims=True), 0.9, is_training)
    with tf.variable_scope('Logits'):
        return tf.squeeze(layers.add_bias(conv(net, num_classes, (1, 1)), layout), layout.pixels), None


class Window(NamedTuple):
    """The part of an image that is used."""

    crop: Crop


class UpperHalf(Preprocessing):
    """The upper half of an image, mirrored at random in training; finished images are in [-1, 1]."""

    def draw(self, image_shape: Any, bbox: Any, uniform: Uniform = tf.random.uniform) -> Flip:
        """Draws the flip."""
        return Flip(uniform([]) < 0.5)

    def crop(self, image_shape: tf.Tensor, distortion: Any = None) -> Window:
        """The upper half."""
        height, width = image_shape[..., 0], image_shape[..., 1]
        return Window(Crop(tf.zeros_like(height), tf.zeros_like(width), height // 2, width))

    def resize(self, pixels: tf.Tensor, window: Window) -> tf.Tensor:
        """Resizes bilinearly."""
        return apply_resize(pixels, self.settings.height, self.settings.width, BILINEAR)

    def steps_of_evaluation(self) -> List[Dict[str, Any]]:
        """The resizing."""
        return [{'resize': [self.settings.height, self.settings.width]}]
