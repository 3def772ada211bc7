"""The steps of every preprocessing, draw, crop, resize and finish, and the operations on pixels that they share.

Each kind of preprocessing is an object with these methods, in a module of its own. The input pipeline and the infeed
call nothing else, and the functions with the documented names are composed of these methods.
"""

import abc
import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from compat import tf
from compat.tensorflow import CASTS_IN_VECTORS
from preprocessing.color import BRIGHTNESS_MAX_DELTA, scale_to_network
from preprocessing.decoding import apply_crop, decode_crop, image_shape
from preprocessing.stateless import Uniform

CROP_AREA_MIN = 0.05
CROP_ASPECT_RATIO_MAX = 4 / 3

# The largest value of a pixel.
WHITE = 255.0

RESIZE_METHODS = (
    tf.image.ResizeMethod.BILINEAR,
    tf.image.ResizeMethod.NEAREST_NEIGHBOR,
    tf.image.ResizeMethod.BICUBIC,
    tf.image.ResizeMethod.AREA,
)
BILINEAR = 0

# A bilinear kernel converts integers to floats itself, four for each number of the result. Converting the image
# beforehand costs less up to this many numbers of the image per number of the result.
_FLOATS_UP_TO = 3.0 if CASTS_IN_VECTORS else 1.0


def whole_image_box() -> tf.Tensor:
    """The bounding box of a whole image, float32 [1, 1, 4]: crops are drawn around it when no boxes are used."""
    return tf.constant([[[0.0, 0.0, 1.0, 1.0]]])


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


class Flip(NamedTuple):
    """The distortions of a batch that `Preprocessing.unpack` returns."""

    flip: tf.Tensor  # bool [images], whether to mirror left to right.


class Preprocessing(abc.ABC):
    """A kind of preprocessing with its settings.

    A training image takes the steps `draw`, `crop`, decoding of the crop, `resize`, `finish`. An evaluation image takes
    the same steps without `draw`. If the host sends resized images as bytes, it adds the numbers from `pack` to
    training images, and the device finishes the batch with the distortions from `unpack`.

    Args:
      settings: a `Settings`, or an object that has them as attributes, such as the configuration of a run.

    Attributes:
      finishes_bytes: whether training images may be rounded to bytes before they are finished. Otherwise the host
        finishes them, then rounds; the device only scales.
      factor, offsets: in evaluation, the network's values of pixels in [0, 255] are `factor` times the pixels plus the
        `offsets` of red, green and blue.
    """

    finishes_bytes = True
    factor = 2 / WHITE
    offsets: Tuple[float, float, float] = (-1.0, -1.0, -1.0)

    def __init__(self, settings: Any):
        self.settings = Settings(*(getattr(settings, name) for name in Settings._fields))

    @abc.abstractmethod
    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform = tf.random.uniform) -> Any:
        """Draws the random numbers of a training image, or of each image of a group: its distortion.

        A seed must give the same numbers in every version, so the order of the draws must not change. The shape is
        int32 [3], height, width and channels; for a group, [images, 3]. The boxes are float32 [1, boxes, 4], each ymin,
        xmin, ymax, xmax as fractions of the image; they must not be used for a group. For a group, each number is
        [images, …], or a scalar if all images have the same.
        """

    @abc.abstractmethod
    def crop(self, image_shape: tf.Tensor, distortion: Any = None) -> Any:
        """The window of a distortion, or the central window of evaluation; its `crop` is the box to decode.

        For a group, with shapes [images, 3] and their distortions, the parts of the window are [images, …].
        """

    @abc.abstractmethod
    def resize(self, pixels: tf.Tensor, window: Any) -> tf.Tensor:
        """Resizes the pixels in a window's `crop`, [crop height, crop width, 3]: float32 [height, width, 3]."""

    @abc.abstractmethod
    def steps_of_evaluation(self) -> List[Dict[str, Any]]:
        """The crop and the resizing of evaluation, each a dict of one key, for `tools/export/prepare.py`."""

    def finish(self, image: tf.Tensor, distortion: Any = None) -> tf.Tensor:
        """Applies the rest of a distortion, here the flip, to a resized image, and scales it for the network.

        The image is float32 [height, width, 3], in [0, 255]. Without a distortion, as in evaluation, and with the
        distortions from `unpack`, it may be a batch of images.
        """
        return self.scale(image if distortion is None else apply_flip(image, distortion.flip))

    def scale(self, images: tf.Tensor) -> tf.Tensor:
        """Scales pixels in [0, 255], float32 [..., height, width, 3], for the network."""
        return scale_to_network(images, WHITE)

    def pack(self, distortion: Any) -> tf.Tensor:
        """The numbers of a distortion that `finish` needs, float32 [numbers]; the first is the flip."""
        return tf.stack([tf.cast(distortion.flip, tf.float32)])

    def unpack(self, numbers: tf.Tensor) -> Any:
        """The distortions of a batch, for `finish`, from the numbers of `pack` for each image, [images, numbers]."""
        return Flip(numbers[:, 0] > 0.5)

    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Inverts the scaling for the network: float32 [..., 3], in [0, 255]."""
        return (images + 1.0) * (WHITE / 2)

    def visible(self, images: tf.Tensor) -> tf.Tensor:
        """Converts finished images [..., 3] back to viewable pixels: uint8, rounded to the nearest integers."""
        pixels = self.unscaled(tf.cast(images, tf.float32))
        return tf.cast(tf.clip_by_value(pixels, 0.0, WHITE) + 0.5, tf.uint8)

    def resize_encoded(
        self, encoded: tf.Tensor, shape: Optional[tf.Tensor] = None, distortion: Any = None
    ) -> tf.Tensor:
        """Decodes, crops and resizes an encoded image: float32 [height, width, 3], in [0, 255].

        The shape is from `image_shape`, if it is known already; without a distortion, the crop of evaluation is used.
        """
        shape = image_shape(encoded) if shape is None else shape
        window = self.crop(shape, distortion)
        return self.resize(decode_crop(encoded, shape, window.crop), window)

    def resize_decoded(self, image: tf.Tensor, distortion: Any = None) -> tf.Tensor:
        """Crops and resizes a decoded image, [any height, any width, 3], bit for bit like `resize_encoded`."""
        window = self.crop(tf.shape(image), distortion)
        return self.resize(apply_crop(image, window.crop), window)

    def of_image(self, image: tf.Tensor, distortion: Any = None) -> tf.Tensor:
        """All steps after `draw` for a decoded image, [any height, any width, 3], with pixels in [0, 255]."""
        return self.finish(self.resize_decoded(image, distortion), distortion)


def apply_flip(image: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
    """Mirrors an image left to right if `flip`, a bool scalar; or each of a batch [images, …] by bool [images]."""
    if image.shape.ndims == 4:
        return tf.where(flip, tf.reverse(image, [2]), image)
    return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)


def apply_resize(image: tf.Tensor, height: int, width: int, method: Union[int, tf.Tensor]) -> tf.Tensor:
    """Resizes an image [any height, any width, channels] to float32 [height, width, channels], of the same range.

    `method` is an index into `RESIZE_METHODS`, as an integer or an int32 scalar.
    """
    constant = method if isinstance(method, int) else tf.get_static_value(method)
    if constant is not None:
        resized = _resize(image, height, width, RESIZE_METHODS[constant])
    else:
        branches = [functools.partial(_resize, image, height, width, m) for m in RESIZE_METHODS]
        resized = tf.switch_case(method, branches)
    resized.set_shape([height, width, image.shape[2]])
    return resized


def _resize(image: tf.Tensor, height: int, width: int, method: tf.image.ResizeMethod) -> tf.Tensor:
    def resize(image: tf.Tensor) -> tf.Tensor:
        # If an image already has the right size, TensorFlow returns it unchanged, so integers remain integers.
        return tf.cast(tf.image.resize(image, [height, width], method), tf.float32)

    if method != tf.image.ResizeMethod.BILINEAR:
        return resize(image)
    return with_fewest_conversions(resize, image, height, width)


def with_fewest_conversions(
    bilinear: Callable[[tf.Tensor], tf.Tensor], image: tf.Tensor, height: int, width: int
) -> tf.Tensor:
    """Applies a bilinear kernel to an image, or to the image in float32 if that costs less. The results are the same.

    The kernel resizes [any height, any width, channels] of any numeric dtype to float32 [height, width, channels].
    """
    if image.dtype.is_floating:
        return bilinear(tf.cast(image, tf.float32))
    is_small = tf.size(image) < int(_FLOATS_UP_TO * height * width * int(image.shape[2]))
    return tf.cond(is_small, lambda: bilinear(tf.cast(image, tf.float32)), lambda: bilinear(image))


def sample(image: tf.Tensor, box: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Samples an image [any height, any width, 3] bilinearly at positions with equal distances.

    The first and last pixels of the result, float32 [height, width, 3], are at the positions of `box`, float32 [4]:
    top, left, bottom, right, in pixels.
    """
    ends = tf.cast(tf.tile(tf.shape(image)[:2] - 1, [2]), tf.float32)
    boxes = [box / ends]

    def bilinear(image: tf.Tensor) -> tf.Tensor:
        return tf.image.crop_and_resize(image[tf.newaxis], boxes, [0], [height, width])[0]

    sampled = with_fewest_conversions(bilinear, image, height, width)
    sampled.set_shape([height, width, 3])
    return sampled
