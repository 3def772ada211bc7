"""Colour distortions of the Inception preprocessing: the fast one in YCbCr, and the full one.

Drawing and applying are separate: a function draws the few numbers of a distortion, another applies given numbers.
"""

import functools
from typing import NamedTuple, Union

from compat import tf
from preprocessing.stateless import Uniform

BRIGHTNESS_MAX_DELTA = 32 / 255
SATURATION_RANGE = (0.5, 1.5)
HUE_MAX_DELTA = 0.2
CONTRAST_RANGE = (0.5, 1.5)

# The four orders of the full colour distortion: b(rightness), s(aturation), h(ue), c(ontrast).
FULL_ORDERINGS = ('bshc', 'sbch', 'chbs', 'hscb')


class FastColor(NamedTuple):
    """A shift in YCbCr, for pixels in [0, 1]: float32 scalars, or float32 [images] for a batch."""

    brightness: tf.Tensor
    cb: tf.Tensor
    cr: tf.Tensor


class FullColor(NamedTuple):
    """The four numbers of the full colour distortion, float32 scalars.

    Brightness is added to pixels in [0, 1], saturation and contrast are factors, hue is a rotation in turns.
    """

    brightness: tf.Tensor
    saturation: tf.Tensor
    hue: tf.Tensor
    contrast: tf.Tensor


# A fast colour is the offsets of red, green and blue, for pixels in [0, 1]: float32 [3], or [images, 3].
Color = Union[tf.Tensor, FullColor]


def draw_fast_color(
    cb_distortion_range: float = 0.1,
    cr_distortion_range: float = 0.1,
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA,
    uniform: Uniform = tf.random.uniform,
) -> FastColor:
    """Draws a shift in YCbCr; each component is uniform in [-range, range)."""
    return FastColor(
        uniform([], -brightness_distortion_range, brightness_distortion_range),
        uniform([], -cb_distortion_range, cb_distortion_range),
        uniform([], -cr_distortion_range, cr_distortion_range),
    )


def draw_full_color(
    brightness_distortion_range: float = BRIGHTNESS_MAX_DELTA, uniform: Uniform = tf.random.uniform
) -> FullColor:
    """Draws the four numbers of the full colour distortion, each uniform in its range."""
    return FullColor(
        uniform([], -brightness_distortion_range, brightness_distortion_range),
        uniform([], *SATURATION_RANGE),
        uniform([], -HUE_MAX_DELTA, HUE_MAX_DELTA),
        uniform([], *CONTRAST_RANGE),
    )


def apply_fast_color(image: tf.Tensor, color: FastColor) -> tf.Tensor:
    """Shifts an RGB image with pixels in [0, 1] in YCbCr and clips it.

    All pixels get the same shift, and the transform from YCbCr to RGB (JFIF 1.02) is linear. The shift is therefore one
    offset for each of red, green and blue, and the image itself is not converted.
    """
    return tf.clip_by_value(image + rgb_offset(color), 0.0, 1.0)


def rgb_offset(color: FastColor) -> tf.Tensor:
    """The offsets of red, green and blue for a shift in YCbCr: [3], or [images, 3] for a batch."""
    return tf.stack(
        [
            1.402 * color.cr + color.brightness,
            -0.344136 * color.cb - 0.714136 * color.cr + color.brightness,
            1.772 * color.cb + color.brightness,
        ],
        axis=-1,
    )


def apply_full_color(image: tf.Tensor, color: FullColor, operations: str, white: float = 1.0) -> tf.Tensor:
    """Applies colour operations to an image with pixels in [0, white] in the given order, then clips it.

    The operations are one letter each: b(rightness), s(aturation), h(ue), c(ontrast). All but brightness are the same
    at any scale.
    """
    apply = {
        'b': lambda x: x + (color.brightness if white == 1.0 else color.brightness * white),
        's': lambda x: tf.image.adjust_saturation(x, color.saturation),
        'h': lambda x: tf.image.adjust_hue(x, color.hue),
        'c': lambda x: tf.image.adjust_contrast(x, color.contrast),
    }
    for operation in operations:
        image = apply[operation](image)
    return tf.clip_by_value(image, 0.0, white)


def operations_of(color_ordering: int, fast_mode: bool) -> str:
    """The operations of an ordering; outside fast mode, ValueError if it is not an index into `FULL_ORDERINGS`."""
    if fast_mode:
        return 'bs' if color_ordering == 0 else 'sb'
    if color_ordering not in range(len(FULL_ORDERINGS)):
        raise ValueError(f'color_ordering is {color_ordering}; it must be 0 to {len(FULL_ORDERINGS) - 1}.')
    return FULL_ORDERINGS[color_ordering]


def apply_color(image: tf.Tensor, color: Color, color_ordering: tf.Tensor, fast_mode: bool, white: float) -> tf.Tensor:
    """Distorts the colour of a resized crop, float32 [height, width, 3], in [0, white], and scales it to [-1, 1].

    Fast colours also accept a batch of images. `color_ordering`, an index into `FULL_ORDERINGS`, is used only for full
    colours outside fast mode; fast mode applies their brightness, then their saturation.
    """
    if not isinstance(color, FullColor):
        # (clip(x / white + offset, 0, 1) - 0.5) * 2, reduced to one multiplication, one addition and one clip.
        image = add_to_channels(image * (2.0 / white), 2.0 * color - 1.0)
        return tf.clip_by_value(image, -1.0, 1.0)
    # Pixels in [0, 2] need no factor afterwards. A power of two changes no digit, so the bits are those of [0, 1].
    distort = functools.partial(apply_full_color, image * (2.0 / white), color, white=2.0)
    if fast_mode:
        return distort(operations_of(0, fast_mode)) - 1.0
    branches = [functools.partial(distort, operations) for operations in FULL_ORDERINGS]
    return tf.switch_case(color_ordering, branches) - 1.0


def scale_to_network(image: tf.Tensor, white: float = 1.0) -> tf.Tensor:
    """Scales pixels from [0, white] to [-1, 1]: (x / white - 0.5) * 2."""
    return image * (2.0 / white) - 1.0


def add_to_channels(image: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Adds an offset, float [3], to each colour channel of an image [height, width, 3] of static shape.

    To a batch, [images, height, width, 3], it adds [3] or [images, 3].
    """
    if image.shape.ndims == 4:
        return image + (offset if offset.shape.ndims == 1 else offset[:, tf.newaxis, tf.newaxis])
    # On a CPU, adding a row to rows is five times as fast as adding a pixel to pixels.
    height, width, channels = image.shape.as_list()
    rows = tf.reshape(image, [height, width * channels])
    return tf.reshape(rows + tf.tile(offset, [width]), [height, width, channels])
