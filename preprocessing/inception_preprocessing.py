"""The Inception preprocessing: random crop, resize, flip and colour in training; central crop in evaluation.

`draw_distortion` draws the few numbers of a training image's distortion; `apply_distortion` applies given numbers
exactly. The functions with the documented names compose the two.
"""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import tf
from preprocessing.color import (
    BRIGHTNESS_MAX_DELTA,
    FULL_ORDERINGS,
    Color,
    apply_color,
    apply_fast_color,
    apply_full_color,
    draw_fast_color,
    draw_full_color,
    operations_of,
    scale_to_network,
)
from preprocessing.crop_sampling import sample_crop
from preprocessing.decoding import Crop, apply_crop
from preprocessing.finishing import apply_flip
from preprocessing.geometry import BILINEAR, RESIZE_METHODS, apply_resize
from preprocessing.stateless import Uniform, uses_generators

MIN_OBJECT_COVERED = 0.1
CROP_AREA_MIN = 0.05
CROP_ASPECT_RATIO_MAX = 4 / 3
CROP_MAX_ATTEMPTS = 100

CENTRAL_FRACTION = 0.875


class Settings(NamedTuple):
    """The settings of the Inception preprocessing, named like the flags that set them.

    Attributes:
      height, width: size of the network's images, in pixels.
      fast_mode … crop_aspect_ratio_max: as for `preprocess_for_train`.
      use_annotated_bbox: crop around the annotated boxes of an image; otherwise around the whole image.
    """

    height: int
    width: int
    fast_mode: bool = True
    use_fast_color_distort: bool = True
    cb_distortion_range: float = 0.1
    cr_distortion_range: float = 0.1
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA
    random_flip: bool = True
    crop_area_min: float = CROP_AREA_MIN
    crop_aspect_ratio_max: float = CROP_ASPECT_RATIO_MAX
    use_annotated_bbox: bool = False


class Distortion(NamedTuple):
    """The random numbers in the preprocessing of one training image.

    Attributes:
      crop: the box to cut out.
      resize_method: int32 scalar, an index into `RESIZE_METHODS`.
      flip: bool scalar, whether to mirror left to right.
      color: the numbers of the fast or of the full colour distortion.
      color_ordering: int32 scalar, an index into `FULL_ORDERINGS`.
    """

    crop: Crop
    resize_method: tf.Tensor
    flip: tf.Tensor
    color: Color
    color_ordering: tf.Tensor


def whole_image_box() -> tf.Tensor:
    """The bounding box of a whole image, float32 [1, 1, 4]: crops are drawn around it when no boxes are used."""
    return tf.constant([[[0.0, 0.0, 1.0, 1.0]]])


def draw_crop(
    image_shape: tf.Tensor,
    bbox: tf.Tensor,
    min_object_covered: float = MIN_OBJECT_COVERED,
    aspect_ratio_range: Tuple[float, float] = (1 / CROP_ASPECT_RATIO_MAX, CROP_ASPECT_RATIO_MAX),
    area_range: Tuple[float, float] = (CROP_AREA_MIN, 1.0),
    max_attempts: int = CROP_MAX_ATTEMPTS,
    uniform: Uniform = tf.random.uniform,
) -> Crop:
    """Draws a random crop that covers enough of at least one box.

    Args:
      image_shape: int32 [3], height, width and channels of the image; or of each image of a group, [images, 3].
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image. If there are no boxes, the
        whole image is the box. For a group with a seed, the constant box of the whole image.
      min_object_covered: the fraction of some box that the crop must contain.
      aspect_ratio_range: lowest and highest width over height.
      area_range: lowest and highest area, as fractions of the image.
      max_attempts: number of attempts; if all fail, the crop is the whole image.
      uniform: draws the numbers, for example a `StatelessUniform`; for TensorFlow's own generators, its operation
        draws the whole crop.
    """
    if not uses_generators(uniform):
        return sample_crop(image_shape, bbox, min_object_covered, aspect_ratio_range, area_range, max_attempts, uniform)

    covered = tf.constant(min_object_covered)

    def box_of(image_shape: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        # Unlike other random operations, this one does not read the graph's seed by itself.
        seed, seed2 = tf.get_seed(None)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            image_shape,
            bounding_boxes=bbox,
            seed=seed,
            seed2=seed2,
            min_object_covered=covered,
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            max_attempts=max_attempts,
            use_image_if_no_bounding_boxes=True,
        )
        return begin, size

    if image_shape.shape.ndims == 1:
        begin, size = box_of(image_shape)
    else:
        begin, size = (tf.stack(each) for each in zip(*map(box_of, tf.unstack(image_shape))))
    return Crop(begin[..., 0], begin[..., 1], size[..., 0], size[..., 1])


def draw_distortion(
    image_shape: tf.Tensor, bbox: tf.Tensor, settings: Settings, uniform: Uniform = tf.random.uniform
) -> Distortion:
    """Draws the random numbers of one training image, or of a group.

    A seed must give the same numbers in every version, so the order of the draws must not change.

    Args:
      image_shape: int32 [3], height, width and channels of the image; or of each image of a group, [images, 3].
      bbox: float32 [1, boxes, 4], the boxes to crop around, as for `draw_crop`.
      settings: of the preprocessing; `use_annotated_bbox` is not read here.
      uniform: draws the numbers.
    """
    fast_mode, brightness_range = settings.fast_mode, settings.brightness_distortion_range
    crop = draw_crop(
        image_shape,
        bbox,
        aspect_ratio_range=(1 / settings.crop_aspect_ratio_max, settings.crop_aspect_ratio_max),
        area_range=(settings.crop_area_min, 1.0),
        uniform=uniform,
    )
    return Distortion(
        crop=crop,
        resize_method=_draw_index(1 if fast_mode else len(RESIZE_METHODS), uniform),
        flip=uniform([]) < 0.5 if settings.random_flip else tf.constant(False),
        color=draw_fast_color(settings.cb_distortion_range, settings.cr_distortion_range, brightness_range, uniform)
        if settings.use_fast_color_distort
        else draw_full_color(brightness_range, uniform),
        # Fast mode always uses ordering 0.
        color_ordering=_draw_index(1 if fast_mode else len(FULL_ORDERINGS), uniform),
    )


def _draw_index(count: int, uniform: Uniform) -> tf.Tensor:
    return tf.constant(0) if count == 1 else uniform([], maxval=count, dtype=tf.int32)


def apply_distortion(image: tf.Tensor, distortion: Distortion, settings: Settings) -> tf.Tensor:
    """Applies a drawn distortion to an image.

    Args:
      image: [any height, any width, 3]; integer pixels span the range of their dtype, float pixels [0, 1].
      distortion: as `draw_distortion` draws it for the image.
      settings: of the preprocessing.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    resized = apply_resize(
        apply_crop(image, distortion.crop), settings.height, settings.width, distortion.resize_method
    )
    return finish(resized, distortion, settings.fast_mode, _white_of(image.dtype))


def finish(image: tf.Tensor, distortion: Distortion, fast_mode: bool, white: float) -> tf.Tensor:
    """Flips a resized crop, distorts its colour and scales it for the network.

    Args:
      image: float32 [height, width, 3], pixels in [0, white].
      distortion: as `draw_distortion` draws it for the image.
      fast_mode: as in `Settings`.
      white: the largest value of a pixel.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    flipped = apply_flip(image, distortion.flip)
    return apply_color(flipped, distortion.color, distortion.color_ordering, fast_mode, white)


def _white_of(dtype: tf.DType) -> float:
    """The largest value of a pixel: integers span the range of their dtype, floats [0, 1]."""
    return float(dtype.max) if dtype.is_integer else 1.0


def central_crop(image_shape: tf.Tensor, central_fraction: float = CENTRAL_FRACTION) -> Crop:
    """The central crop of an image, the same box as that of `tf.image.central_crop`.

    Args:
      image_shape: int32 [3], height, width and channels of the image.
      central_fraction: the fraction of height and of width that the crop keeps.
    """
    sides = tf.cast(image_shape[:2], tf.float64)
    begin = tf.cast((sides - sides * central_fraction) / 2, tf.int32)
    size = image_shape[:2] - 2 * begin
    return Crop(begin[0], begin[1], size[0], size[1])


def distorted_bounding_box_crop(
    image: tf.Tensor,
    bbox: tf.Tensor,
    min_object_covered: float = MIN_OBJECT_COVERED,
    aspect_ratio_range: Tuple[float, float] = (1 / CROP_ASPECT_RATIO_MAX, CROP_ASPECT_RATIO_MAX),
    area_range: Tuple[float, float] = (CROP_AREA_MIN, 1.0),
    max_attempts: int = CROP_MAX_ATTEMPTS,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Cuts out a random box; the arguments are those of `draw_crop`.

    Returns:
      The crop, of the image's dtype and of shape [crop height, crop width, channels]; and its box, float32 [1, 1, 4]:
      ymin, xmin, ymax, xmax, as fractions of the image.
    """
    shape = tf.shape(image)
    crop = draw_crop(shape, bbox, min_object_covered, aspect_ratio_range, area_range, max_attempts)
    corners = tf.stack([crop.top, crop.left, crop.top + crop.height, crop.left + crop.width])
    size = tf.stack([shape[0], shape[1], shape[0], shape[1]])
    box = tf.cast(corners, tf.float32) / tf.cast(size, tf.float32)
    return apply_crop(image, crop), tf.reshape(box, [1, 1, 4])


def distort_color_fast(
    image: tf.Tensor, cb_distortion_range: float = 0.1, cr_distortion_range: float = 0.1
) -> tf.Tensor:
    """Shifts brightness and chroma at random, in YCbCr.

    Args:
      image: float [height, width, 3], pixels in [0, 1].
      cb_distortion_range: largest shift of Cb.
      cr_distortion_range: largest shift of Cr.

    Returns:
      The same shape and dtype, in [0, 1].
    """
    return apply_fast_color(image, draw_fast_color(cb_distortion_range, cr_distortion_range))


def distort_color(image: tf.Tensor, color_ordering: int = 0, fast_mode: bool = True) -> tf.Tensor:
    """Distorts brightness and saturation at random, and outside fast mode hue and contrast too.

    Args:
      image: float [height, width, 3], pixels in [0, 1].
      color_ordering: in fast mode, 0 applies brightness first and any other number saturation first; otherwise an
        index into `FULL_ORDERINGS`, 0 to 3.
      fast_mode: do not change hue and contrast.

    Returns:
      The same shape and dtype, in [0, 1].

    Raises:
      ValueError: not in fast mode, and `color_ordering` is not 0 to 3.
    """
    return apply_full_color(image, draw_full_color(), operations_of(color_ordering, fast_mode))


def preprocess_for_train(
    image: tf.Tensor,
    height: int,
    width: int,
    bbox: tf.Tensor,
    fast_mode: bool = True,
    use_fast_color_distort: bool = True,
    cb_distortion_range: float = 0.1,
    cr_distortion_range: float = 0.1,
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA,
    random_flip: bool = True,
    crop_area_min: float = CROP_AREA_MIN,
    crop_aspect_ratio_max: float = CROP_ASPECT_RATIO_MAX,
) -> tf.Tensor:
    """Distorts an image for training: random crop, resize, flip and colour.

    Args:
      image: [any height, any width, 3]; integer pixels span the range of their dtype, float pixels [0, 1].
      height: height of the result, in pixels.
      width: width of the result, in pixels.
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image. The crop covers a tenth of at
        least one box; if there are no boxes, a tenth of the image.
      fast_mode: resize bilinearly and do not change hue and contrast. Otherwise draw one of four resize methods and one
        of four orders of the colour operations.
      use_fast_color_distort: distort colour as a shift in YCbCr, in either mode.
      cb_distortion_range: largest shift of Cb, for pixels in [0, 1].
      cr_distortion_range: largest shift of Cr, for pixels in [0, 1].
      brightness_distortion_range: largest shift of brightness, for pixels in [0, 1], by either colour distortion.
      random_flip: mirror half of the images.
      crop_area_min: area of the smallest crop, as a fraction of the image.
      crop_aspect_ratio_max: largest width over height of a crop, and largest height over width.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    settings = Settings(
        height,
        width,
        fast_mode,
        use_fast_color_distort,
        cb_distortion_range,
        cr_distortion_range,
        brightness_distortion_range,
        random_flip,
        crop_area_min,
        crop_aspect_ratio_max,
    )
    return apply_distortion(image, draw_distortion(tf.shape(image), bbox, settings), settings)


def preprocess_for_eval(
    image: tf.Tensor, height: int, width: int, central_fraction: float = CENTRAL_FRACTION
) -> tf.Tensor:
    """Prepares an image for evaluation: central crop and bilinear resize.

    Args:
      image: [any height, any width, 3]; integer pixels span the range of their dtype, float pixels [0, 1].
      height: height of the result, in pixels.
      width: width of the result, in pixels.
      central_fraction: the fraction of height and of width that the crop keeps.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    pixels = apply_crop(image, central_crop(tf.shape(image), central_fraction))
    return scale_to_network(apply_resize(pixels, height, width, BILINEAR), _white_of(image.dtype))
