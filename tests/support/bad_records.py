"""Kinds of bad records, and the messages that report them."""

from typing import Any, Callable, Dict, Tuple

from compat import tf
from tests.support.photos import CORNERS, set_boxes


def set_labels(example: tf.train.Example, *labels: int) -> None:
    example.features.feature['image/class/label'].int64_list.value[:] = labels


def set_images(example: tf.train.Example, *images: bytes) -> None:
    example.features.feature['image/encoded'].bytes_list.value[:] = images


def set_integer_boxes(example: tf.train.Example) -> None:
    for corner in CORNERS:
        example.features.feature[f'image/object/bbox/{corner}'].int64_list.value[:] = [1]


Damage = Callable[[tf.train.Example], Any]

# By kind: a function that damages a record, and a regular expression found in its message.
DAMAGES: Dict[str, Tuple[Damage, str]] = {
    'no image': (lambda e: set_images(e), 'no image: image/encoded'),
    'an empty image': (lambda e: set_images(e, b''), 'no image: image/encoded'),
    'two images': (lambda e: set_images(e, b'1', b'2'), 'no image: image/encoded'),
    'no label': (lambda e: set_labels(e), 'no label: image/class/label'),
    'two labels': (lambda e: set_labels(e, 1, 2), 'no label: image/class/label'),
    'a label too high': (lambda e: set_labels(e, 6), r'label 6 is not in 0 to 5 \(--num_classes=6\)'),
    'a label below 0': (lambda e: set_labels(e, -1), 'label -1 is not in 0 to 5'),
    'uneven boxes': (
        lambda e: set_boxes(e, ymin=[0.1, 0.2], xmin=[0.1], ymax=[0.5], xmax=[0.6]),
        'missing corners: image/object/bbox',
    ),
    'boxes without a corner': (
        lambda e: e.features.feature['image/object/bbox/xmax'].Clear(),
        'missing corners: image/object/bbox',
    ),
    'boxes in whole numbers': (set_integer_boxes, 'image/object/bbox'),
    'a JPEG cut short': (
        lambda e: set_images(e, e.features.feature['image/encoded'].bytes_list.value[0][:5000]),
        r'the image \(5,000 bytes\) cannot be decoded',
    ),
    'random bytes': (lambda e: set_images(e, b'not a JPEG'), r'the image \(10 bytes\) cannot be decoded'),
}
