"""Converts the handwritten digits that come with scikit-learn to a data set in ImageNet's layout.

The source has 1,797 images of 8 x 8 pixels in 17 grey levels (Alpaydin & Kaynak, "Optical Recognition of Handwritten
Digits", UCI Machine Learning Repository), four fifths for training. Label 1 is the digit 0, and so on.
"""

import functools
import os
import sys
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from compat.errors import CommandError
from compat.log import logger
from console import program
from console.screen import Screen
from tools import extras
from tools.parsers import new_parser, numbers_of

if TYPE_CHECKING:
    from data.dataset_info import DatasetInfo

TRAIN_SHARDS = 8
VALIDATION_SHARDS = 4
VALIDATION_FRACTION = 0.2

_ALL_DIGITS = tuple(range(10))

# Each of the 8 x 8 pixels becomes a square with this side: a block of JPEG.
_PIXEL_SIDE = 8
# The black margin, in pixels. Evaluation crops an eighth of the image, which must not touch the digit.
_MARGIN = 8
_JPEG_QUALITY = 95


def build(
    data_dir: str,
    digits: Sequence[int] = _ALL_DIGITS,
    images_per_digit: Optional[int] = None,
    rare: Sequence[int] = (),
) -> 'DatasetInfo':
    """Writes a data set of digits, whose labels begin with 1 in their order, to a new or empty folder.

    Training images are the first ones of each digit in the whole data set, so a smaller number gives a subset of a
    larger one. Only a tenth of the training images of `rare` digits is written. All validation images of the digits are
    written.
    """
    from compat import tf
    from tools.datasets import image_example, writing
    from tools.datasets.writing import digest, split_by_content

    extras.require('demo', 'sklearn')
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = bunch.images.astype('uint8')
    digit_of = [*map(int, bunch.target)]
    digests = [digest(image.tobytes()) for image in pixels]
    train, validation = (
        [index for index in split if digit_of[index] in digits]
        for split in split_by_content(digests, digit_of, VALIDATION_FRACTION)
    )
    first: List[int] = []
    for digit in digits:
        own = [index for index in train if digit_of[index] == digit]
        count = len(own) if images_per_digit is None else images_per_digit
        if len(own) < count:
            raise CommandError(f'{count} images: the digit {digit} has {len(own)} for training.')
        first += own[: round(count / 10) if digit in rare else count]
    train = sorted(first, key=train.index)
    classes = [str(digit) for digit in digits]
    name = 'digits' if len(digits) == len(_ALL_DIGITS) else f'digits {" ".join(classes)}'
    if rare:
        name = f'{name}, few of {" ".join(map(str, rare))}'
    source = 'scikit-learn, sklearn.datasets.load_digits: 1,797 handwritten digits of 8 x 8 pixels'
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.uint8, [None, None, 3])
        encode = tf.image.encode_jpeg(image, quality=_JPEG_QUALITY)

        def example(index: int) -> Any:
            rgb = _enlarge(pixels[index])
            label = digits.index(digit_of[index]) + 1
            encoded, text, (height, width, _) = session.run(encode, {image: rgb}), classes[label - 1], rgb.shape
            return image_example.make_example(encoded, 'JPEG', label, text, height, width, f'digit-{index:04d}')

        examples = [[functools.partial(example, index) for index in part] for part in (train, validation)]
        shards = TRAIN_SHARDS, VALIDATION_SHARDS
        return writing.write_data_set(data_dir, name, source, classes, examples, shards)


def build_if_missing(
    data_dir: str, digits: Sequence[int] = _ALL_DIGITS, images_per_digit: Optional[int] = None
) -> Optional['DatasetInfo']:
    """Writes the data set, as `build`; returns None if the folder has it already, or gets it meanwhile."""
    try:
        return None if is_built(data_dir) else build(data_dir, digits, images_per_digit)
    except CommandError:
        if is_built(data_dir):
            return None
        raise


def make(data_dir: str) -> None:
    """Writes the whole data set for a run of the digits preset, as `build_if_missing`, and says so."""
    made = build_if_missing(data_dir)
    if made:
        images = f'{made.train_images:,} training and {made.validation_images:,} validation images'
        logger.info('wrote %s to %s', images, data_dir)


def is_built(data_dir: str) -> bool:
    """Whether `build` made this folder."""
    return os.path.exists(os.path.join(data_dir, 'dataset.json'))


def _enlarge(digit: Any) -> Any:
    """Converts an 8 x 8 image with values 0 to 16 to an RGB image, uint8 [80, 80, 3]."""
    import numpy as np

    grey = np.minimum(digit.astype(np.int32) * 16, 255).astype(np.uint8)
    grey = np.kron(grey, np.ones([_PIXEL_SIDE, _PIXEL_SIDE], np.uint8))
    return np.repeat(np.pad(grey, _MARGIN, mode='constant')[:, :, np.newaxis], 3, axis=2)


def main() -> int:
    """Builds the data set in the folder named on the command line."""
    parser = new_parser('digits', __doc__)
    parser.add_argument('data_dir', help='new folder for the data set')
    about = 'digits of which only a tenth of the training images is written, such as 5,6,7,8,9 (default: none)'
    parser.add_argument('--rare', type=numbers_of(int, 0, 9), default=[], metavar='DIGITS', help=about)
    arguments = parser.parse_args()

    def command(screen: Screen) -> None:
        from tools.datasets.conversion import summary

        print(summary(build(arguments.data_dir, rare=arguments.rare), arguments.data_dir))

    return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
