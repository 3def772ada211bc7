"""The flags for the fields of records, with the names and defaults of a run's flags."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data.tf_example import Fields


def add_flags(parser: argparse.ArgumentParser, with_image: bool = True) -> None:
    """Adds the flags of the image, if wanted, and of the label."""
    add, image, label = parser.add_argument, 'image/encoded', 'image/class/label'
    if with_image:
        add('--image_key', default=image, help=f'key of the encoded image in TFRecords (default: {image})')
    in_tar = 'in tar, its extension or json:KEY'
    add('--label_key', default=label, help=f'key of the label in TFRecords (default: {label}); {in_tar}')
    add('--label_offset', type=int, default=0, help='number to add to each label (default: 0)')


def fields_of(arguments: argparse.Namespace) -> 'Fields':
    """The fields that the flags name."""
    from data.tf_example import Fields

    return Fields(arguments.image_key, arguments.label_key, arguments.label_offset)
