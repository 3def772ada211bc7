"""Random crops from given random numbers, by the rules of `tf.image.sample_distorted_bounding_box`.

TensorFlow's operation draws its own numbers, so its crops cannot be a pure function of an image's seed.
"""

from typing import Tuple

import numpy as np

from compat import tf
from compat.graph_checks import require
from preprocessing.decoding import Crop
from preprocessing.stateless import Uniform


def sample_crop(
    image_shape: tf.Tensor,
    bbox: tf.Tensor,
    min_object_covered: float,
    aspect_ratio_range: Tuple[float, float],
    area_range: Tuple[float, float],
    max_attempts: int,
    uniform: Uniform,
) -> Crop:
    """Draws a random crop with the distribution of `tf.image.sample_distorted_bounding_box`; see `draw_crop`.

    Like the operation's kernel, an attempt draws an aspect ratio, a height within the limits of area and image, and a
    position, in whole pixels. All attempts are computed at once, and the first valid one is the crop. Boxes smaller
    than a pixel do not count; at run time, `tf.errors.InvalidArgumentError` is raised if a box is not in [0, 1].
    """
    # Pixel counts are whole numbers in float32. The rows of a matrix are heights and widths, its columns attempts.
    sides = tf.cast(image_shape[..., :2, tf.newaxis], tf.float32)
    height, width = tf.split(sides, 2, -2)
    aspect, step, position = tf.split(uniform([4, max_attempts]), [1, 1, 2], -2)
    aspect = aspect * (aspect_ratio_range[1] - aspect_ratio_range[0]) + aspect_ratio_range[0]
    areas = tf.constant(area_range, shape=[2, 1]) * width * height
    min_area, max_area = tf.split(areas, 2, -2)
    lowest, highest = tf.split(tf.math.rint(tf.sqrt(areas / aspect)), 2, -2)
    # Keeps the crop within the image's height and, with the width rounded, within its width. The kernel divides in
    # float64, which would take five times as many operations here. With float32, the largest height differs by one row
    # for about one in ten thousand aspect ratios.
    highest = tf.minimum(tf.minimum(highest, height), tf.floor((width + 0.5) / aspect))
    lowest = tf.minimum(lowest, highest)
    heights = lowest + tf.floor(step * (highest - lowest + 1.0))
    # If rounding made the area too small or too large, one row more or less may correct it.
    area = heights * tf.math.rint(heights * aspect)
    heights += tf.sign(tf.clip_by_value(area, min_area, max_area) - area)
    widths = tf.math.rint(heights * aspect)
    area = heights * widths
    sizes = tf.concat([heights, widths], -2)
    begins = tf.floor(position * (sides - sizes))

    if np.array_equal(tf.get_static_value(bbox), [[[0, 0, 1, 1]]]):
        # If the whole image is the only box, the covered fraction is computed with a quarter fewer operations.
        covers = area / (height * width) >= min_object_covered
    else:
        covers = _covers(begins, begins + sizes, _in_pixels(bbox, sides), min_object_covered)
    fits = tf.reduce_all(tf.concat([sizes <= sides, area >= min_area, area <= max_area, covers], -2), -2)
    return _first(fits, begins, sizes, sides)


def _first(fits: tf.Tensor, begins: tf.Tensor, sizes: tf.Tensor, sides: tf.Tensor) -> Crop:
    """The first attempt that fits, else the whole image.

    The arguments are bool [..., attempts], float32 [..., 2, attempts] twice (top and left, height and width), and the
    sides of the image, float32 [..., 2, 1].
    """
    max_attempts = int(fits.shape[-1])
    # The last column, after the attempts, is the whole image.
    crops = tf.concat([tf.concat([begins, sizes], -2), tf.concat([tf.zeros_like(sides), sides], -2)], -1)
    attempts = np.arange(max_attempts + 1, dtype=np.int32)
    first = tf.reduce_min(tf.where_v2(fits, attempts[:-1], max_attempts), -1, keepdims=True)
    # Not tf.gather, which takes a column of each matrix of a group with thirty operations.
    is_first = tf.cast(tf.equal(attempts, first), tf.float32)
    return Crop(*tf.unstack(tf.cast(tf.reduce_sum(crops * is_first[..., tf.newaxis, :], -1), tf.int32), 4, -1))


def _in_pixels(bbox: tf.Tensor, sides: tf.Tensor) -> tf.Tensor:
    """Converts boxes to whole pixels, [boxes, 2, 2, 1]; axis 1 is begin, end. Without boxes, adds the whole image."""
    if_none = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])[:, tf.minimum(tf.shape(bbox)[1], 1) :]
    bbox = tf.concat([bbox, if_none], 1)
    is_inside = tf.reduce_all(tf.equal(bbox, tf.clip_by_value(bbox, 0.0, 1.0)))
    with tf.control_dependencies([require(is_inside, ['Bounding boxes must be in [0, 1].'])]):
        return tf.floor(tf.reshape(bbox, [-1, 2, 2, 1]) * sides)


def _covers(begins: tf.Tensor, ends: tf.Tensor, boxes: tf.Tensor, min_object_covered: float) -> tf.Tensor:
    """Whether each crop contains enough of at least one box: bool [1, attempts]."""
    box_begins, box_ends = tf.unstack(boxes, 2, axis=1)
    box_area = tf.reduce_prod(box_ends - box_begins, 1)
    shared = tf.reduce_prod(tf.nn.relu(tf.minimum(ends, box_ends) - tf.maximum(begins, box_begins)), 1)
    is_covered = tf.logical_and(shared / box_area >= min_object_covered, box_area >= 1.0)
    return tf.reduce_any(is_covered, 0, keepdims=True)
