"""The steps of every preprocessing: draw, crop, resize, finish.

Each kind of preprocessing is an object with these methods, in a module of its own. The input pipeline and the infeed
call nothing else, and the functions with the documented names are made of them.
"""

import abc
from typing import Any, NamedTuple, Optional

from compat import tf
from preprocessing.color import BRIGHTNESS_MAX_DELTA
from preprocessing.decoding import apply_crop
from preprocessing.finishing import WHITE, apply_flip, scaled
from preprocessing.stateless import Uniform

CROP_AREA_MIN = 0.05
CROP_ASPECT_RATIO_MAX = 4 / 3


class Settings(NamedTuple):
    """The settings of all kinds of preprocessing, named like the flags that set them."""

    # Size of the network's images, in pixels.
    height: int
    width: int
    random_flip: bool = True  # Mirror half of the training images.
    # Resize bilinearly and do not change hue and contrast. Otherwise draw one of four resize methods and one of four
    # orders of the colour operations.
    fast_mode: bool = True
    use_fast_color_distort: bool = True  # Distort colour as a shift in YCbCr, in either mode.
    # Largest shifts of Cb and Cr, for pixels in [0, 1].
    cb_distortion_range: float = 0.1
    cr_distortion_range: float = 0.1
    # Largest shift of brightness, for pixels in [0, 1], by either colour distortion.
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA
    crop_area_min: float = CROP_AREA_MIN  # Area of the smallest crop, as a fraction of the image.
    # Largest width over height of a crop, and largest height over width.
    crop_aspect_ratio_max: float = CROP_ASPECT_RATIO_MAX
    use_annotated_bbox: bool = False  # Crop around the annotated boxes of an image; otherwise around the whole image.
    crop_padding: int = 4  # For `cifar`, black pixels on each side of a resized training image.


class Preprocessing(abc.ABC):
    """A kind of preprocessing with its settings.

    A training image takes the steps `draw`, `crop`, decoding of the crop, `resize`, `finish`. An evaluation image takes
    the same steps without `draw`. With `--transfer=uint8` the host sends resized images, and in training the numbers
    from `pack`; `finishing` has what the device then does.

    Attributes:
      kind: its name, a value of `--preprocessing`.
      fits_bytes: whether resized images may be sent as bytes, and finished on the device.
      finishes_bytes: whether training images may be rounded to bytes before they are finished. Otherwise the host
        finishes them, then rounds; the device only scales.
    """

    kind: str
    fits_bytes = finishes_bytes = True

    def __init__(self, settings: Settings):
        self.settings = settings

    @abc.abstractmethod
    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform = tf.random.uniform) -> Any:
        """Draws the random numbers of a training image, or of each image of a group: its distortion.

        A seed must give the same numbers in every version, so the order of the draws must not change. The shape is
        int32 [3], height, width and channels; for a group, [images, 3]. The boxes are float32 [1, boxes, 4], each ymin,
        xmin, ymax, xmax as fractions of the image; they must not be used for a group. Of a group, each number is
        [images, …], but a scalar where all images have the same.
        """

    @abc.abstractmethod
    def crop(self, image_shape: tf.Tensor, distortion: Any = None) -> Any:
        """The window of a distortion, or the central one of evaluation: `crop`, the pixels to decode, and more.

        For a group, of shapes [images, 3] and their distortions, the parts of the window are [images, …].
        """

    @abc.abstractmethod
    def resize(self, pixels: tf.Tensor, window: Any) -> tf.Tensor:
        """Resizes the pixels in a window's `crop`, [crop height, crop width, 3]: float32 [height, width, 3]."""

    def finish(self, image: tf.Tensor, distortion: Any = None) -> tf.Tensor:
        """Applies the rest of a distortion, here the flip, to a resized image, and scales it for the network.

        The image is float32 [height, width, 3], in [0, 255]; in evaluation, without a distortion, also a batch of
        images.
        """
        return scaled(self.kind, image if distortion is None else apply_flip(image, distortion.flip))

    def pack(self, distortion: Any) -> tf.Tensor:
        """The numbers of a distortion that `finishing.finished` needs, float32 [numbers]."""
        return tf.stack([tf.cast(distortion.flip, tf.float32)])

    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Inverts the scaling for the network: float32 [..., 3], in [0, 255]."""
        return (images + 1.0) * (WHITE / 2)

    def visible(self, images: tf.Tensor) -> tf.Tensor:
        """Converts finished images [..., 3] back to viewable pixels: uint8, rounded to the nearest integers."""
        pixels = self.unscaled(tf.cast(images, tf.float32))
        return tf.cast(tf.clip_by_value(pixels, 0.0, WHITE) + 0.5, tf.uint8)

    def of_image(self, image: tf.Tensor, distortion: Optional[Any] = None) -> tf.Tensor:
        """All steps after `draw` for a decoded image, [any height, any width, 3], with pixels in [0, 255]."""
        window = self.crop(tf.shape(image), distortion)
        return self.finish(self.resize(apply_crop(image, window.crop), window), distortion)
