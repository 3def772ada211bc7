"""The Inception preprocessing: random crop, resize, flip and colour in training; central crop in evaluation.

`InceptionPreprocessing` draws the few numbers of a training image's distortion, and applies given numbers exactly. The
functions with the documented names are composed of its steps.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from compat import tf
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
    rgb_offset,
)
from preprocessing.crop_sampling import sample_crop
from preprocessing.decoding import Crop, apply_crop
from preprocessing.stateless import Uniform, uses_generators
from preprocessing.steps import (
    BILINEAR,
    CROP_AREA_MIN,
    CROP_ASPECT_RATIO_MAX,
    RESIZE_METHODS,
    WHITE,
    Preprocessing,
    Settings,
    apply_flip,
    apply_resize,
    whole_image_box,
)

MIN_OBJECT_COVERED = 0.1
CROP_MAX_ATTEMPTS = 100

CENTRAL_FRACTION = 0.875


class Distortion(NamedTuple):
    """The random numbers of one training image."""

    crop: Crop  # The box to cut out.
    resize_method: tf.Tensor  # int32 scalar, an index into `RESIZE_METHODS`.
    flip: tf.Tensor  # bool scalar, whether to mirror left to right.
    color: Color  # The offsets of red, green and blue, float32 [3], or the numbers of the full colour distortion.
    color_ordering: tf.Tensor  # int32 scalar, an index into `FULL_ORDERINGS`.


class Unpacked(NamedTuple):
    """The parts of a batch's distortions that `InceptionPreprocessing.finish` needs, with fast colours."""

    flip: tf.Tensor  # bool [images].
    color: tf.Tensor  # float32 [images, 3].
    color_ordering: tf.Tensor


class Window(NamedTuple):
    """The crop of an image, and an index into `RESIZE_METHODS`."""

    crop: Crop
    resize_method: Union[int, tf.Tensor]


class InceptionPreprocessing(Preprocessing):
    """The Inception preprocessing; finished images are in [-1, 1]."""

    def __init__(self, settings: Any):
        super().__init__(settings)
        # `tf.image.adjust_saturation` returns grey or black for some pixels next to a full turn of the hue, such as red
        # ones whose green is a rounding error below their blue. After rounding to bytes, it could change a pixel by 206
        # levels. The fast colour distortion, a single shift, could not.
        self.finishes_bytes = self.settings.use_fast_color_distort

    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform = tf.random.uniform) -> Distortion:
        """Draws crop, resize method, flip and colour."""
        settings = self.settings
        fast_mode, brightness_range = settings.fast_mode, settings.brightness_distortion_range
        crop = draw_crop(
            image_shape,
            bbox if settings.use_annotated_bbox else whole_image_box(),
            aspect_ratio_range=(1 / settings.crop_aspect_ratio_max, settings.crop_aspect_ratio_max),
            area_range=(settings.crop_area_min, 1.0),
            uniform=uniform,
        )
        return Distortion(
            crop=crop,
            resize_method=_draw_index(1 if fast_mode else len(RESIZE_METHODS), uniform),
            flip=uniform([]) < 0.5 if settings.random_flip else tf.constant(False),
            color=rgb_offset(
                draw_fast_color(settings.cb_distortion_range, settings.cr_distortion_range, brightness_range, uniform)
            )
            if settings.use_fast_color_distort
            else draw_full_color(brightness_range, uniform),
            # Fast mode always uses ordering 0.
            color_ordering=_draw_index(1 if fast_mode else len(FULL_ORDERINGS), uniform),
        )

    def crop(self, image_shape: tf.Tensor, distortion: Optional[Distortion] = None) -> Window:
        """The drawn crop, or the central 87.5 % of height and width."""
        if distortion is None:
            return Window(central_crop(image_shape), BILINEAR)
        return Window(distortion.crop, BILINEAR if self.settings.fast_mode else distortion.resize_method)

    def resize(self, pixels: tf.Tensor, window: Window) -> tf.Tensor:
        """Resizes by the drawn method, or bilinearly in evaluation."""
        return apply_resize(pixels, self.settings.height, self.settings.width, window.resize_method)

    def steps_of_evaluation(self) -> List[Dict[str, Any]]:
        """The central crop, and the resizing."""
        return [{'central_crop': CENTRAL_FRACTION}, {'resize': [self.settings.height, self.settings.width]}]

    def finish(self, image: tf.Tensor, distortion: Union[Distortion, Unpacked, None] = None) -> tf.Tensor:
        """Flips, distorts the colour and scales to [-1, 1]; only scales in evaluation."""
        if distortion is None:
            return super().finish(image)
        flipped = apply_flip(image, distortion.flip)
        return apply_color(flipped, distortion.color, distortion.color_ordering, self.settings.fast_mode, WHITE)

    def pack(self, distortion: Distortion) -> tf.Tensor:
        """The flip and the three offsets of a fast colour."""
        return tf.concat([super().pack(distortion), distortion.color], 0)

    def unpack(self, numbers: tf.Tensor) -> Unpacked:
        """The flips, and the offsets of the fast colours."""
        return Unpacked(super().unpack(numbers).flip, numbers[:, 1:], tf.constant(0))


def draw_crop(
    image_shape: tf.Tensor,
    bbox: tf.Tensor,
    min_object_covered: float = MIN_OBJECT_COVERED,
    aspect_ratio_range: Tuple[float, float] = (1 / CROP_ASPECT_RATIO_MAX, CROP_ASPECT_RATIO_MAX),
    area_range: Tuple[float, float] = (CROP_AREA_MIN, 1.0),
    max_attempts: int = CROP_MAX_ATTEMPTS,
    uniform: Uniform = tf.random.uniform,
) -> Crop:
    """Draws a random crop that covers enough of at least one box; the whole image, if all attempts fail.

    The shape is int32 [3], height, width and channels of the image; or [images, 3] of a group. The boxes are float32
    [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image; without any, and for a group with a seed, the
    whole image is the box. The ranges are of width over height, and of areas as fractions of the image. `uniform` draws
    the numbers, for example a `StatelessUniform`; TensorFlow's own generators draw a whole crop in one operation.
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


def _draw_index(count: int, uniform: Uniform) -> tf.Tensor:
    return tf.constant(0) if count == 1 else uniform([], maxval=count, dtype=tf.int32)


def central_crop(image_shape: tf.Tensor, central_fraction: float = CENTRAL_FRACTION) -> Crop:
    """The box of `tf.image.central_crop`, for shapes of images [..., 3] and the fraction of their sides to keep."""
    sides = tf.cast(image_shape[..., :2], tf.float64)
    begin = tf.cast((sides - sides * central_fraction) / 2, tf.int32)
    size = image_shape[..., :2] - 2 * begin
    return Crop(begin[..., 0], begin[..., 1], size[..., 0], size[..., 1])


def distorted_bounding_box_crop(
    image: tf.Tensor,
    bbox: tf.Tensor,
    min_object_covered: float = MIN_OBJECT_COVERED,
    aspect_ratio_range: Tuple[float, float] = (1 / CROP_ASPECT_RATIO_MAX, CROP_ASPECT_RATIO_MAX),
    area_range: Tuple[float, float] = (CROP_AREA_MIN, 1.0),
    max_attempts: int = CROP_MAX_ATTEMPTS,
    scope: Optional[str] = None,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Cuts out a random box; the arguments are those of `draw_crop`, and a name scope for the operations.

    The results are the crop, [crop height, crop width, channels], and its box, float32 [1, 1, 4]: ymin, xmin, ymax,
    xmax, as fractions of the image.
    """
    with tf.name_scope(scope, 'distorted_bounding_box_crop'):
        shape = tf.shape(image)
        crop = draw_crop(shape, bbox, min_object_covered, aspect_ratio_range, area_range, max_attempts)
        corners = tf.stack([crop.top, crop.left, crop.top + crop.height, crop.left + crop.width])
        size = tf.stack([shape[0], shape[1], shape[0], shape[1]])
        box = tf.cast(corners, tf.float32) / tf.cast(size, tf.float32)
        return apply_crop(image, crop), tf.reshape(box, [1, 1, 4])


def distort_color_fast(
    image: tf.Tensor,
    cb_distortion_range: float = 0.1,
    cr_distortion_range: float = 0.1,
    scope: Optional[str] = None,
) -> tf.Tensor:
    """Shifts brightness and chroma of an image with pixels in [0, 1] at random, in YCbCr, up to these ranges."""
    with tf.name_scope(scope, 'distort_color'):
        return apply_fast_color(image, draw_fast_color(cb_distortion_range, cr_distortion_range))


def distort_color(
    image: tf.Tensor, color_ordering: int = 0, fast_mode: bool = True, scope: Optional[str] = None
) -> tf.Tensor:
    """Distorts brightness and saturation of an image in [0, 1], and outside fast mode hue and contrast too.

    In fast mode, the ordering 0 applies brightness first and any other number saturation first. Otherwise it is an
    index into `FULL_ORDERINGS`, 0 to 3; ValueError is raised for others.
    """
    with tf.name_scope(scope, 'distort_color'):
        return apply_full_color(image, draw_full_color(), operations_of(color_ordering, fast_mode))


def preprocess_for_train(
    image: tf.Tensor,
    height: int,
    width: int,
    bbox: Optional[tf.Tensor],
    fast_mode: bool = True,
    use_fast_color_distort: bool = True,
    cb_distortion_range: float = 0.1,
    cr_distortion_range: float = 0.1,
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA,
    random_flip: bool = True,
    crop_area_min: float = CROP_AREA_MIN,
    crop_aspect_ratio_max: float = CROP_ASPECT_RATIO_MAX,
    scope: Optional[str] = None,
) -> tf.Tensor:
    """Distorts an image for training: random crop, resize, flip and colour; float32 [height, width, 3], in [-1, 1].

    The image is [any height, any width, 3]; integer pixels span the range of their dtype, float pixels [0, 1]. The
    boxes are float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image. The crop covers a tenth of
    at least one box; without boxes, and with None, a tenth of the image. `scope` is a name scope for the operations.
    `Settings` describes the other arguments.
    """
    ranges = (cb_distortion_range, cr_distortion_range, brightness_distortion_range, crop_area_min)
    settings = Settings(height, width, random_flip, fast_mode, use_fast_color_distort, *ranges, crop_aspect_ratio_max)
    preprocessing = InceptionPreprocessing(settings._replace(use_annotated_bbox=True))
    with tf.name_scope(scope, 'distort_image'):
        distortion = preprocessing.draw(tf.shape(image), whole_image_box() if bbox is None else bbox)
        return preprocessing.of_image(_in_bytes(image), distortion)


def preprocess_for_eval(
    image: tf.Tensor,
    height: int,
    width: int,
    central_fraction: float = CENTRAL_FRACTION,
    scope: Optional[str] = None,
) -> tf.Tensor:
    """Prepares an image for evaluation: central crop and bilinear resize.

    The image is [any height, any width, 3]; integer pixels span the range of their dtype, float pixels [0, 1]. The
    crop keeps `central_fraction` of height and of width. The result is float32 [height, width, 3], in [-1, 1]. `scope`
    is a name scope for the operations.
    """
    preprocessing = InceptionPreprocessing(Settings(height, width))
    with tf.name_scope(scope, 'eval_image'):
        crop = central_crop(tf.shape(image), central_fraction)
        pixels = apply_crop(_in_bytes(image), crop)
        return preprocessing.finish(preprocessing.resize(pixels, Window(crop, BILINEAR)))


def _in_bytes(image: tf.Tensor) -> tf.Tensor:
    """The image with pixels in [0, 255], from integers that span the range of their dtype, or floats in [0, 1]."""
    if image.dtype == tf.uint8:
        return image
    return tf.cast(image, tf.float32) * (WHITE / image.dtype.max if image.dtype.is_integer else WHITE)
