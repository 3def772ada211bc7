"""Converts the handwritten digits that come with scikit-learn to a data set in ImageNet's layout.

The source has 1,797 images of 8 x 8 pixels in 17 grey levels (Alpaydin & Kaynak, "Optical Recognition of Handwritten
Digits", UCI Machine Learning Repository), four fifths for training. Label 1 is the digit 0, and so on.
"""

import argparse
import dataclasses
import functools
import os
import sys
from typing import Sequence

import numpy as np

from console import extras, processes, program
from console.errors import EXIT_CODES
from console.paths import expanded
from console.screen import Screen
from console.tensorflow_versions import tf
from data import records, tf_example, writing
from data.dataset_info import FILE_NAME, DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.split import digest, split_by_content

TRAIN_SHARDS = 8
VALIDATION_SHARDS = 4
VALIDATION_FRACTION = 0.2

# Each of the 8 x 8 pixels becomes a square with this side: a block of JPEG.
_PIXEL_SIDE = 8
# The black margin, in pixels. Evaluation crops an eighth of the image, which must not touch the digit.
_MARGIN = 8
_JPEG_QUALITY = 95


def build(data_dir: str) -> DatasetInfo:
    """Writes the data set to a new or empty folder.

    Raises:
      records.DataError: scikit-learn is not installed, or the folder is not empty or cannot be made.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise records.DataError(f'scikit-learn, which includes the digits, is not installed: {extras.command("demo")}.')
    bunch = load_digits()
    pixels = bunch.images.astype(np.uint8)
    digests = [digest(image.tobytes()) for image in pixels]
    labels = [int(digit) + 1 for digit in bunch.target]
    train, validation = split_by_content(digests, labels, VALIDATION_FRACTION)
    info = DatasetInfo(
        name='digits',
        source='scikit-learn, sklearn.datasets.load_digits: 1,797 handwritten digits of 8 x 8 pixels',
        train_images=len(train),
        validation_images=len(validation),
        num_classes=11,
        class_names=['background', *'0123456789'],
    )
    with writing.new_data_dir(data_dir) as unfinished:
        written = (
            _write(unfinished, records.TRAIN, pixels, labels, train, TRAIN_SHARDS),
            _write(unfinished, records.VALIDATION, pixels, labels, validation, VALIDATION_SHARDS),
        )
        info = dataclasses.replace(info, fingerprint=fingerprint(*written))
        info = info.write(unfinished)
    return info


def is_built(data_dir: str) -> bool:
    """Whether `build` made this folder."""
    return os.path.exists(os.path.join(data_dir, FILE_NAME))


def _write(
    data_dir: str, split: str, pixels: np.ndarray, labels: Sequence[int], indices: Sequence[int], shards: int
) -> SplitFingerprint:
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.uint8, [None, None, 3])
        encode = tf.image.encode_jpeg(image, quality=_JPEG_QUALITY)

        def make(index: int) -> tf.train.Example:
            rgb = _enlarge(pixels[index])
            encoded = session.run(encode, {image: rgb})
            text = str(labels[index] - 1)
            height, width, _ = rgb.shape
            return tf_example.make_example(encoded, 'JPEG', labels[index], text, height, width, f'digit-{index:04d}')

        return writing.write_shards(data_dir, split, [functools.partial(make, index) for index in indices], shards)


def _enlarge(digit: np.ndarray) -> np.ndarray:
    """Converts an 8 x 8 image with values 0 to 16 to an RGB image, uint8 [80, 80, 3]."""
    grey = np.minimum(digit.astype(np.int32) * 16, 255).astype(np.uint8)
    grey = np.kron(grey, np.ones([_PIXEL_SIDE, _PIXEL_SIDE], np.uint8))
    return np.repeat(np.pad(grey, _MARGIN, mode='constant')[:, :, np.newaxis], 3, axis=2)


def main() -> int:
    """Builds the data set in the folder named on the command line."""
    parser = argparse.ArgumentParser(
        prog=processes.command_name('data.digits'),
        description=__doc__,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('data_dir', help='new folder for the data set')
    arguments = parser.parse_args(expanded())

    def command(screen: Screen) -> None:
        info = build(arguments.data_dir)
        print(f'{info.train_images} training and {info.validation_images} validation images in {arguments.data_dir}')

    return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
