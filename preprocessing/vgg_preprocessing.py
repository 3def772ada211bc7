"""The VGG preprocessing: resize by the smaller side, crop, flip in training, subtract the channel means.

Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", section 3.1.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from compat import tf
from preprocessing.color import add_to_channels
from preprocessing.decoding import Crop
from preprocessing.stateless import Uniform
from preprocessing.steps import Preprocessing, Settings, sample

# Mean red, green and blue of ImageNet's training images, for pixels in [0, 255].
CHANNEL_MEANS = (123.68, 116.78, 103.94)

# The range of the smaller side after resizing, in pixels, for crops of this size.
CROP_SIZE = 299
RESIZE_SIDE_MIN = 300
RESIZE_SIDE_MAX = 600


def resize_range(height: int, width: int) -> Tuple[int, int]:
    """The range of the smaller side, in pixels: 300 to 600 for 299-pixel crops, in proportion for other sizes."""
    scale = max(height, width) / CROP_SIZE
    return round(RESIZE_SIDE_MIN * scale), round(RESIZE_SIDE_MAX * scale)


class Distortion(NamedTuple):
    """The random numbers in the preprocessing of one training image."""

    side: tf.Tensor  # int32 scalar, the smaller side after resizing, in pixels.
    # float32 scalars in [0, 1), the position of the crop, from topmost and leftmost to lowest and rightmost.
    top: tf.Tensor
    left: tf.Tensor
    flip: tf.Tensor  # bool scalar, whether to mirror left to right.


class Window(NamedTuple):
    """The part of an image that becomes a crop of the resized image."""

    crop: Crop  # The box of the image's pixels that the result is computed from.
    # float32 [4], the positions of the result's first and last pixels within `crop`: top, left, bottom, right.
    box: tf.Tensor
    # bool scalar, whether resizing enlarges the image; the result's last pixels may then lie beyond the image's last
    # pixels.
    is_enlarged: tf.Tensor


class VggPreprocessing(Preprocessing):
    """The VGG preprocessing; finished images are pixels in [0, 255] minus the channel means.

    `sides` is the range of the smaller side after resizing, in pixels, both ends included; by default `resize_range`.
    """

    factor, offsets = 1.0, (-CHANNEL_MEANS[0], -CHANNEL_MEANS[1], -CHANNEL_MEANS[2])

    def __init__(self, settings: Any, sides: Optional[Tuple[int, int]] = None):
        super().__init__(settings)
        self._size = [self.settings.height, self.settings.width]
        self._sides = sides or resize_range(*self._size)

    def draw(self, image_shape: Any, bbox: Any, uniform: Uniform = tf.random.uniform) -> Distortion:
        """Draws the smaller side after resizing, the position of the crop and the flip."""
        return Distortion(
            side=uniform([], self._sides[0], self._sides[1] + 1, tf.int32),
            top=uniform([]),
            left=uniform([]),
            flip=uniform([]) < 0.5 if self.settings.random_flip else tf.constant(False),
        )

    def crop(self, image_shape: tf.Tensor, distortion: Optional[Distortion] = None) -> Window:
        """The window of the drawn crop, or of the central crop at the range's smallest side."""
        if distortion is None:
            size = resized_size(image_shape, tf.constant(self._sides[0]))
            return self._window(image_shape, size, (size - self._size) // 2)
        size = resized_size(image_shape, distortion.side)
        positions = size - self._size + 1
        fractions = tf.stack([distortion.top, distortion.left], -1)
        begin = tf.cast(tf.floor(fractions * tf.cast(positions, tf.float32)), tf.int32)
        return self._window(image_shape, size, tf.minimum(begin, positions - 1))

    def _window(self, image_shape: tf.Tensor, size: tf.Tensor, begin: tf.Tensor) -> Window:
        """The window of a crop that begins at `begin` in the image resized to `size`."""
        # tf.image.resize_bilinear computes pixel i of a resized side from the pixels around i * step.
        step = tf.cast(image_shape[..., :2], tf.float64) / tf.cast(size, tf.float64)
        first = tf.cast(begin, tf.float64) * step
        last = tf.cast(begin + tf.constant(self._size) - 1, tf.float64) * step
        low = tf.cast(tf.floor(first), tf.int32)
        count = tf.minimum(tf.cast(tf.floor(last), tf.int32) + 2, image_shape[..., :2]) - low
        box = tf.concat([first, last], -1) - tf.cast(tf.concat([low, low], -1), tf.float64)
        crop = Crop(low[..., 0], low[..., 1], count[..., 0], count[..., 1])
        return Window(crop, tf.cast(box, tf.float32), tf.reduce_any(step < 1.0, -1))

    def resize(self, pixels: tf.Tensor, window: Window) -> tf.Tensor:
        """Resizes bilinearly, with the same result as resizing the whole image and then cropping."""
        # Bilinear resizing repeats the image's last pixels beyond its edge.
        pixels = tf.cond(window.is_enlarged, lambda: _with_last_pixels_repeated(pixels), lambda: pixels)
        return sample(pixels, window.box, *self._size)

    def steps_of_evaluation(self) -> List[Dict[str, Any]]:
        """The resizing by the smaller side, and the central crop."""
        return [{'resize_smaller_side': self._sides[0]}, {'crop': self._size}]

    def scale(self, images: tf.Tensor) -> tf.Tensor:
        """Subtracts the channel means."""
        return subtract_mean(images)

    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Adds the channel means."""
        return images + CHANNEL_MEANS


def subtract_mean(image: tf.Tensor) -> tf.Tensor:
    """Subtracts `CHANNEL_MEANS` from the pixels, in [0, 255], of an image or of a batch."""
    return add_to_channels(image, -tf.constant(CHANNEL_MEANS))


def resized_size(image_shape: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """Returns height and width, int32 [..., 2], of images resized to the smaller sides [...] at their aspect ratios.

    Like the published program, it truncates the larger side to whole pixels, in float32.
    """
    sides, side = tf.cast(image_shape[..., :2], tf.float32), tf.expand_dims(side, -1)
    smallest = tf.reduce_min(sides, -1, keepdims=True)
    scaled = tf.cast(sides * (tf.cast(side, tf.float32) / smallest), tf.int32)
    # In float32, the smaller side of 1 of 125 images would be one pixel less.
    return tf.where_v2(tf.equal(sides, smallest), side, scaled)


def _with_last_pixels_repeated(pixels: tf.Tensor) -> tf.Tensor:
    """Adds a copy of the last row and of the last column to an image [height, width, 3]."""
    # TensorFlow concatenates whole rows; `tf.pad` mirrors single values, which takes 50 times as long.
    shape = tf.shape(pixels)
    rows = tf.reshape(pixels, [shape[0], -1])
    rows = tf.concat([rows, rows[:, -3:]], 1)
    rows = tf.concat([rows, rows[-1:]], 0)
    return tf.reshape(rows, [shape[0] + 1, shape[1] + 1, 3])


def preprocess_image(
    image: tf.Tensor,
    height: int,
    width: int,
    is_training: bool = False,
    resize_side_min: int = RESIZE_SIDE_MIN,
    resize_side_max: int = RESIZE_SIDE_MAX,
    random_flip: bool = True,
) -> tf.Tensor:
    """Prepares an image for training or for evaluation: float32 [height, width, 3], minus `CHANNEL_MEANS`.

    The image is [any height, any width, 3], of any numeric dtype, with pixels in [0, 255]. Training draws the smaller
    side uniformly from the range, both ends included, and the crop at random, and mirrors half of the images.
    Evaluation crops centrally, with the smaller side at the range's lower end. ValueError is raised if the crop is
    larger than the smaller side may be, or the range is empty.
    """
    if max(height, width) > resize_side_min or resize_side_min > resize_side_max:
        raise ValueError(
            f'height={height} and width={width} must be at most resize_side_min={resize_side_min}, and '
            f'resize_side_min at most resize_side_max={resize_side_max}.'
        )
    preprocessing = VggPreprocessing(
        Settings(height, width, random_flip=random_flip), (resize_side_min, resize_side_max)
    )
    return preprocessing.of_image(image, preprocessing.draw(tf.shape(image), None) if is_training else None)
