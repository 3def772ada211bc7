"""The Inception preprocessing: random crop, resize, flip and colour in training; central crop in evaluation.

A training image's distortion is drawn in one place (`draw_distortion`, a few numbers) and applied in another
(`apply_distortion`, exact for given numbers). The functions with the documented names compose the two.
"""

import functools
from typing import NamedTuple, Tuple, Union

import tensorflow as tf

from preprocessing.crop_sampling import sample_crop
from preprocessing.decoding import Crop, apply_crop
from preprocessing.stateless import Uniform

BRIGHTNESS_MAX_DELTA = 32 / 255
SATURATION_RANGE = (0.5, 1.5)
HUE_MAX_DELTA = 0.2
CONTRAST_RANGE = (0.5, 1.5)

MIN_OBJECT_COVERED = 0.1
CROP_AREA_MIN = 0.05
CROP_ASPECT_RATIO_MAX = 4 / 3
CROP_MAX_ATTEMPTS = 100

CENTRAL_FRACTION = 0.875

# The orders of the full colour distortion: b(rightness), s(aturation), h(ue), c(ontrast).
FULL_ORDERINGS = ('bshc', 'sbch', 'chbs', 'hscb')

RESIZE_METHODS = (
    tf.image.ResizeMethod.BILINEAR,
    tf.image.ResizeMethod.NEAREST_NEIGHBOR,
    tf.image.ResizeMethod.BICUBIC,
    tf.image.ResizeMethod.AREA,
)
BILINEAR = 0


class FastColor(NamedTuple):
    """A shift in YCbCr: float32 scalars, for pixels in [0, 1]."""

    brightness: tf.Tensor
    cb: tf.Tensor
    cr: tf.Tensor


class FullColor(NamedTuple):
    """Brightness offset, saturation factor, hue rotation (in turns) and contrast factor: float32 scalars."""

    brightness: tf.Tensor
    saturation: tf.Tensor
    hue: tf.Tensor
    contrast: tf.Tensor


Color = Union[FastColor, FullColor]


class Distortion(NamedTuple):
    """All that is random in the preprocessing of one training image.

    Attributes:
      crop: the box that is cut out.
      resize_method: int32 scalar, an index into `RESIZE_METHODS`.
      flip: bool scalar, whether to mirror left and right.
      color: the shift or the four factors.
      color_ordering: int32 scalar, the order in which the four factors apply.
    """

    crop: Crop
    resize_method: tf.Tensor
    flip: tf.Tensor
    color: Color
    color_ordering: tf.Tensor


def whole_image_box() -> tf.Tensor:
    """The box of a whole image, as float32 [1, 1, 4]: what a crop is drawn around if nothing is annotated."""
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
      image_shape: int32 [3], height, width and channels of the image.
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image; without any, the
        whole image is the box.
      min_object_covered: the fraction of some box that the crop must contain.
      aspect_ratio_range: allowed width over height, lowest and highest.
      area_range: allowed area as a fraction of the image, lowest and highest.
      max_attempts: draws before the whole image is taken instead.
      uniform: draws the numbers, such as a `StatelessUniform`; by default, TensorFlow's own sampler does.
    """
    if uniform is not tf.random.uniform:
        return sample_crop(image_shape, bbox, min_object_covered, aspect_ratio_range, area_range, max_attempts, uniform)
    # Unlike the other random operations, this one does not take up the graph's seed by itself.
    seed, seed2 = tf.compat.v1.get_seed(None)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        image_shape,
        bounding_boxes=bbox,
        seed=seed,
        seed2=seed2,
        min_object_covered=min_object_covered,
        aspect_ratio_range=aspect_ratio_range,
        area_range=area_range,
        max_attempts=max_attempts,
        use_image_if_no_bounding_boxes=True,
    )
    return Crop(begin[0], begin[1], size[0], size[1])


def draw_fast_color(
    cb_distortion_range: float = 0.1,
    cr_distortion_range: float = 0.1,
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA,
    uniform: Uniform = tf.random.uniform,
) -> FastColor:
    """Draws a shift in YCbCr, each part uniform within its range on both sides of zero."""
    return FastColor(
        uniform([], -brightness_distortion_range, brightness_distortion_range),
        uniform([], -cb_distortion_range, cb_distortion_range),
        uniform([], -cr_distortion_range, cr_distortion_range),
    )


def draw_full_color(
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA, uniform: Uniform = tf.random.uniform
) -> FullColor:
    """Draws the four colour factors, each uniform in its range."""
    return FullColor(
        uniform([], -brightness_distortion_range, brightness_distortion_range),
        uniform([], *SATURATION_RANGE),
        uniform([], -HUE_MAX_DELTA, HUE_MAX_DELTA),
        uniform([], *CONTRAST_RANGE),
    )


def draw_distortion(
    image_shape: tf.Tensor,
    bbox: tf.Tensor,
    fast_mode: bool = True,
    use_fast_color_distort: bool = True,
    cb_distortion_range: float = 0.1,
    cr_distortion_range: float = 0.1,
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA,
    random_flip: bool = True,
    crop_area_min: float = CROP_AREA_MIN,
    crop_aspect_ratio_max: float = CROP_ASPECT_RATIO_MAX,
    uniform: Uniform = tf.random.uniform,
) -> Distortion:
    """Draws everything that is random about one training image.

    Arguments are those of `preprocess_for_train`, and `uniform`, which draws the numbers.
    """
    crop = draw_crop(
        image_shape,
        bbox,
        aspect_ratio_range=(1 / crop_aspect_ratio_max, crop_aspect_ratio_max),
        area_range=(crop_area_min, 1.0),
        uniform=uniform,
    )
    return Distortion(
        crop=crop,
        resize_method=_draw_index(1 if fast_mode else len(RESIZE_METHODS), uniform),
        flip=uniform([]) < 0.5 if random_flip else tf.constant(False),
        color=draw_fast_color(cb_distortion_range, cr_distortion_range, brightness_distortion_range, uniform)
        if use_fast_color_distort
        else draw_full_color(brightness_distortion_range, uniform),
        # Fast mode always takes ordering 0.
        color_ordering=_draw_index(1 if fast_mode else len(FULL_ORDERINGS), uniform),
    )


def _draw_index(count: int, uniform: Uniform) -> tf.Tensor:
    return tf.constant(0) if count == 1 else uniform([], maxval=count, dtype=tf.int32)


def apply_resize(image: tf.Tensor, height: int, width: int, method: Union[int, tf.Tensor]) -> tf.Tensor:
    """Resizes an image by one of `RESIZE_METHODS`, whose index may be a tensor.

    Args:
      image: [any height, any width, 3], of any numeric dtype.
      height: height of the result, in pixels.
      width: width of the result, in pixels.
      method: the index, or an int32 scalar.

    Returns:
      float32 [height, width, 3], with pixels of the same range.
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
        # What has the size already stays as it is, bytes too.
        return tf.cast(tf.compat.v1.image.resize(image, [height, width], method), tf.float32)

    def convert_and_resize() -> tf.Tensor:
        return resize(tf.cast(image, tf.float32))

    if method != tf.image.ResizeMethod.BILINEAR or image.dtype.is_floating:
        return convert_and_resize()
    # The kernel takes bytes, too, and converts them as it uses them: four for each that it makes. That costs as much as
    # to convert an image of the result's size before.
    is_small = tf.size(image) < height * width * int(image.shape[2])
    return tf.cond(is_small, convert_and_resize, lambda: resize(image))


def apply_fast_color(image: tf.Tensor, color: FastColor) -> tf.Tensor:
    """Shifts an RGB image in YCbCr and clips it to [0, 1].

    The shift is the same for all pixels, and the transform to RGB (JFIF 1.02) is linear: one offset for each
    of red, green and blue does it, with no conversion of the image.

    Args:
      image: float [height, width, 3], pixels in [0, 1].
      color: the shift.
    """
    return tf.clip_by_value(image + _rgb_offset(color), 0.0, 1.0)


def _rgb_offset(color: FastColor) -> tf.Tensor:
    """What a shift in YCbCr adds to red, green and blue: [3], or [images, 3] for the shifts of several images."""
    return tf.stack(
        [
            1.402 * color.cr + color.brightness,
            -0.344136 * color.cb - 0.714136 * color.cr + color.brightness,
            1.772 * color.cb + color.brightness,
        ],
        axis=-1,
    )


def apply_full_color(image: tf.Tensor, color: FullColor, operations: str) -> tf.Tensor:
    """Applies colour operations in the order given, and clips to [0, 1].

    Args:
      image: float [height, width, 3], pixels in [0, 1]; or several, with factors for each, brightness and
        saturation only.
      color: the factors.
      operations: a letter each: b(rightness), s(aturation), h(ue), c(ontrast).
    """
    apply = {
        'b': lambda x: x + _per_image(x, color.brightness),
        's': lambda x: _adjust_saturation(x, color.saturation),
        'h': lambda x: tf.image.adjust_hue(x, color.hue),
        'c': lambda x: tf.image.adjust_contrast(x, color.contrast),
    }
    for operation in operations:
        image = apply[operation](image)
    return tf.clip_by_value(image, 0.0, 1.0)


def _per_image(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """A number for each of several images, in the shape that goes with [images, height, width, 3]."""
    return number[:, tf.newaxis, tf.newaxis, tf.newaxis] if image.shape.ndims == 4 else number


def _adjust_saturation(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    if image.shape.ndims == 3:
        return tf.image.adjust_saturation(image, factor)
    # That operation has one factor for all images.
    hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(image), axis=-1)
    saturation = tf.clip_by_value(saturation * factor[:, tf.newaxis, tf.newaxis], 0.0, 1.0)
    return tf.image.hsv_to_rgb(tf.stack([hue, saturation, value], axis=-1))


def _operations(color_ordering: int, fast_mode: bool) -> str:
    if fast_mode:
        return 'bs' if color_ordering == 0 else 'sb'
    if color_ordering not in range(len(FULL_ORDERINGS)):
        raise ValueError(f'color_ordering is {color_ordering}; it must be 0 to {len(FULL_ORDERINGS) - 1}.')
    return FULL_ORDERINGS[color_ordering]


def apply_distortion(
    image: tf.Tensor, distortion: Distortion, height: int, width: int, fast_mode: bool = True
) -> tf.Tensor:
    """Applies a drawn distortion to an image.

    Args:
      image: [any height, any width, 3]; integers are taken over their whole range, floats as [0, 1].
      distortion: what `draw_distortion` drew for the image.
      height: height of the result, in pixels.
      width: width of the result, in pixels.
      fast_mode: as for `preprocess_for_train`.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    resized = apply_resize(apply_crop(image, distortion.crop), height, width, distortion.resize_method)
    flipped = apply_flip(resized, distortion.flip)
    return apply_color(flipped, distortion.color, distortion.color_ordering, fast_mode, white_of(image.dtype))


def white_of(dtype: tf.DType) -> float:
    """The largest value of a pixel: integers are taken over their whole range, floats as [0, 1]."""
    return float(dtype.max) if dtype.is_integer else 1.0


def apply_color(image: tf.Tensor, color: Color, color_ordering: tf.Tensor, fast_mode: bool, white: float) -> tf.Tensor:
    """Distorts the colour of a resized crop, and scales it for the network.

    Args:
      image: float32 [height, width, 3], pixels in [0, white]; or several, [images, height, width, 3], with colours that
        are vectors: fast ones, or full ones in fast mode.
      color: what `draw_distortion` drew.
      color_ordering: likewise.
      fast_mode: as for `preprocess_for_train`.
      white: the largest value of a pixel.

    Returns:
      The same shape, in [-1, 1].
    """
    if isinstance(color, FastColor):
        # (clip(x / white + offset, 0, 1) - 0.5) * 2 in one multiplication, addition and clipping.
        image = add_to_channels(image * (2.0 / white), 2.0 * _rgb_offset(color) - 1.0)
        return tf.clip_by_value(image, -1.0, 1.0)
    image *= 1.0 / white
    if fast_mode:
        image = apply_full_color(image, color, _operations(0, fast_mode))
    else:
        branches = [functools.partial(apply_full_color, image, color, operations) for operations in FULL_ORDERINGS]
        image = tf.switch_case(color_ordering, branches)
    return scale_to_network(image)


def apply_flip(image: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
    """Mirrors an image [height, width, 3] left and right if `flip`; or those of several for which it is true."""
    if image.shape.ndims == 4:
        return tf.compat.v1.where(flip, tf.reverse(image, [2]), image)
    return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)


def add_to_channels(image: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Adds to the channels of an image [height, width, 3], or of several: offset is [3], or [images, 3] for them."""
    if image.shape.ndims == 4:
        return image + (offset if offset.shape.ndims == 1 else offset[:, tf.newaxis, tf.newaxis])
    # On a CPU a sum of rows with a row is five times as fast as one of pixels with a pixel.
    height, width, channels = image.shape.as_list()
    rows = tf.reshape(image, [height, width * channels])
    return tf.reshape(rows + tf.tile(offset, [width]), [height, width, channels])


def scale_to_network(image: tf.Tensor, white: float = 1.0) -> tf.Tensor:
    """Pixels from [0, white] to [-1, 1]: (x / white - 0.5) * 2."""
    return image * (2.0 / white) - 1.0


def central_crop(image_shape: tf.Tensor, central_fraction: float = CENTRAL_FRACTION) -> Crop:
    """The middle of an image, as `tf.image.central_crop` cuts it out.

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
    """Cuts out a random box; arguments as for `draw_crop`.

    Returns:
      The crop, of the image's dtype and shape [crop height, crop width, channels], and its box as float32
      [1, 1, 4]: ymin, xmin, ymax, xmax, fractions of the image.
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
    """Distorts brightness and saturation, and hue and contrast unless in fast mode, at random.

    Args:
      image: float [height, width, 3], pixels in [0, 1].
      color_ordering: fast mode: 0 for brightness first, any other for saturation first; else 0 to 3, an
        index into `FULL_ORDERINGS`.
      fast_mode: leave hue and contrast alone.

    Returns:
      The same shape and dtype, in [0, 1].

    Raises:
      ValueError: not in fast mode, and `color_ordering` is not 0 to 3.
    """
    return apply_full_color(image, draw_full_color(), _operations(color_ordering, fast_mode))


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
      image: [any height, any width, 3]; integers are taken over their whole range, floats as [0, 1].
      height: height of the result, in pixels.
      width: width of the result, in pixels.
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image; the crop covers a
        tenth of at least one of them, or of the image if there are none.
      fast_mode: resize bilinearly, and leave hue and contrast alone; else by one of four methods at random,
        and with all four colour operations in one of four orders at random.
      use_fast_color_distort: distort colour as a shift in YCbCr, whatever the mode.
      cb_distortion_range: largest shift of Cb.
      cr_distortion_range: largest shift of Cr.
      brightness_distortion_range: largest shift of brightness, by either distortion of colour.
      random_flip: mirror half of the images.
      crop_area_min: smallest crop, as a fraction of the image.
      crop_aspect_ratio_max: largest width over height of the crop, and of height over width.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    distortion = draw_distortion(
        tf.shape(image),
        bbox,
        fast_mode=fast_mode,
        use_fast_color_distort=use_fast_color_distort,
        cb_distortion_range=cb_distortion_range,
        cr_distortion_range=cr_distortion_range,
        brightness_distortion_range=brightness_distortion_range,
        random_flip=random_flip,
        crop_area_min=crop_area_min,
        crop_aspect_ratio_max=crop_aspect_ratio_max,
    )
    return apply_distortion(image, distortion, height, width, fast_mode)


def preprocess_for_eval(
    image: tf.Tensor, height: int, width: int, central_fraction: float = CENTRAL_FRACTION
) -> tf.Tensor:
    """Prepares an image for evaluation: central crop and bilinear resize.

    Args:
      image: [any height, any width, 3]; integers are taken over their whole range, floats as [0, 1].
      height: height of the result, in pixels.
      width: width of the result, in pixels.
      central_fraction: the fraction of height and of width that the crop keeps.

    Returns:
      float32 [height, width, 3], in [-1, 1].
    """
    pixels = apply_crop(image, central_crop(tf.shape(image), central_fraction))
    return scale_to_network(apply_resize(pixels, height, width, BILINEAR), white_of(image.dtype))
