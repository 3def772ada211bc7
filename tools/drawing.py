"""Figures and small images on the pages of this program's commands."""

import contextlib
import io
from typing import Any, Callable, Iterator, Tuple

import numpy as np

from compat import tf
from console import html

DOTS_PER_INCH = 150
_PAGE_PIXELS_PER_INCH = 96
# The colours of the page in light mode; in dark mode, the page inverts its figures.
FAINT, GOOD, BAD, MOST = '#8a939d', '#0072b2', '#c44f00', '#003a70'
# Pixels of the longer side of a small image: sharp on displays with two pixels per CSS pixel.
_SIDE = 320
_JPEG_QUALITY = 80


def png(figure: Any) -> bytes:
    """The PNG file of a figure."""
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=DOTS_PER_INCH, bbox_inches='tight')
    return content.getvalue()


def on_page(png: bytes) -> Tuple[str, int]:
    """The data URI of a figure, and the width in CSS pixels at which its text has the intended size."""
    # Bytes 16 to 19 of a PNG file are its width.
    width = int.from_bytes(png[16:20], 'big') * _PAGE_PIXELS_PER_INCH / DOTS_PER_INCH
    return html.data_uri(png, 'image/png'), round(width)


@contextlib.contextmanager
def thumbnails() -> Iterator[Callable[[np.ndarray], bytes]]:
    """Yields a function that makes a small JPEG file of an image, uint8 [height, width, 3]. Any thread may call it."""
    with tf.Graph().as_default() as graph:
        pixels = tf.placeholder(tf.uint8, [None, None, 3])
        sides = tf.cast(tf.shape(pixels)[:2], tf.float32)
        size = tf.cast(tf.math.ceil(sides * tf.minimum(1.0, _SIDE / tf.reduce_max(sides))), tf.int32)
        small = tf.image.resize_area(pixels[tf.newaxis], size)[0]
        encoded = tf.image.encode_jpeg(tf.cast(small + 0.5, tf.uint8), quality=_JPEG_QUALITY)
    with contextlib.closing(tf.Session(graph=graph)) as session:
        yield lambda image: session.run(encoded, {pixels: image})
