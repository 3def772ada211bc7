"""Converts JPEG and PNG images, in a folder per class, to record files.

The images are in FOLDER/CLASS/, or, if they are already split, in FOLDER/train/CLASS/ and FOLDER/validation/CLASS/ (or
FOLDER/val/CLASS/). Classes are numbered from 1, in the order of their names; 0 is the background.
"""

import argparse
import dataclasses
import functools
import itertools
import os
import sys
from typing import Callable, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

import tensorflow as tf

from console import processes, program
from console.errors import EXIT_CODES
from console.paths import expanded
from console.screen import Screen
from data import records, tf_example, writing
from data.dataset_info import DatasetInfo
from data.fingerprint import fingerprint
from data.split import digest, split_by_content
from preprocessing.decoding import decode_image

EXTENSIONS = ('.jpg', '.jpeg', '.png')
_NAMED_AT_MOST = 10

# The folders of images that are already split; the validation folder may have either name.
_TRAIN_FOLDER = 'train'
_VALIDATION_FOLDERS = ('validation', 'val')

Say = Callable[[str], None]


class ImageFile(NamedTuple):
    """An image file and its class."""

    path: str
    class_name: str


class Found(NamedTuple):
    """The contents of a folder of class folders, in order.

    Attributes:
      images: the images.
      unused: other files and folders.
      empty: class folders without images, except those in `unused`.
    """

    images: List[ImageFile]
    unused: List[str]
    empty: List[str]


def find_images(folder: str) -> Found:
    """Lists a folder of class folders. Hidden files and folders are skipped.

    Raises:
      records.DataError: the folder does not exist, or has no class folder with an image; or a folder cannot be listed.
    """
    if not os.path.isdir(folder):
        raise records.DataError(f'{folder}: no such folder.')
    images, unused = [], []
    classes: List[str] = []
    visited: Set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith('.'))
        if os.path.realpath(parent) in visited:
            # A link to a visited folder, possibly a cycle.
            folders[:] = []
            unused.append(parent)
            continue
        visited.add(os.path.realpath(parent))
        inside = os.path.relpath(parent, folder)
        if inside == os.curdir:
            classes = folders[:]
        for name in sorted(names):
            path = os.path.join(parent, name)
            if name.startswith('.'):
                continue
            if inside != os.curdir and name.lower().endswith(EXTENSIONS):
                images.append(ImageFile(path, inside.split(os.sep)[0]))
            else:
                unused.append(path)
    if not images:
        raise records.DataError(
            f'{folder}: no images. It must hold a folder per class with files that end in {", ".join(EXTENSIONS)}.'
        )
    empty = {os.path.join(folder, name) for name in {*classes} - {image.class_name for image in images}}
    return Found(images, unused, sorted(empty - {*unused}))


def _refuse(error: OSError) -> NoReturn:
    raise records.DataError(
        f'{error.filename}: cannot be listed: {error.strerror}. Make it readable, or remove it: its images would be '
        'missing otherwise.'
    )


def import_folder(
    folder: str,
    data_dir: str,
    validation_fraction: float,
    train_shards: int,
    validation_shards: int,
    skip_unreadable: bool,
    say: Say,
) -> DatasetInfo:
    """Converts a folder of class folders to a data set.

    Args:
      folder: the images, split into train/ and validation/ or not.
      data_dir: the folder for the data set, which must be missing or empty.
      validation_fraction: the share of each class that becomes validation images, if the images are not split.
      train_shards: the number of training files.
      validation_shards: the number of validation files.
      skip_unreadable: leave out images that cannot be decoded, instead of stopping.
      say: called with messages about the progress.

    Returns:
      The description of the data set, as in its `dataset.json`.

    Raises:
      records.DataError: there are no images, a split has none, a validation class has no training images, images
        cannot be decoded, a folder cannot be listed, or `data_dir` is not empty or cannot be made.
    """
    writing.check_can_be_made(data_dir)
    reader = _ImageReader()
    images = _find_all(folder, say)
    images, digests = _readable(images, reader, skip_unreadable, say)
    labels = _labels(folder, images)
    train, validation = _split(images, labels, digests, validation_fraction, say)
    parts = (
        (records.TRAIN, train, train_shards),
        (records.VALIDATION, validation, validation_shards),
    )
    for name, part, _ in parts:
        if not part:
            raise records.DataError(
                f'{folder}: no {name} images are left; each split needs some. --validation_fraction='
                f'{validation_fraction:g} is the share of the distinct images of each class, rounded to a whole number.'
            )
    info = DatasetInfo(
        name=os.path.basename(os.path.abspath(folder)),
        source='a folder of images',
        train_images=len(train),
        validation_images=len(validation),
        num_classes=len(labels) + 1,
        class_names=['background', *labels],
    )
    written = []
    with writing.new_data_dir(data_dir) as unfinished:
        for name, part, shards in parts:
            examples = [functools.partial(reader.example, image, labels[image.class_name]) for image in part]
            written.append(writing.write_shards(unfinished, name, examples, min(shards, len(part))))
            say(f'{len(part)} {name} images written')
        info = dataclasses.replace(info, fingerprint=fingerprint(*written))
        info = info.write(unfinished)
    return info


def _find_all(folder: str, say: Say) -> List[List[ImageFile]]:
    """The images of the training and the validation folder, or all images if they are not split."""
    folders = _divided_folders(folder) or [folder]
    all_found = [find_images(part_folder) for part_folder in folders]
    unused = [path for found in all_found for path in found.unused]
    empty = [path for found in all_found for path in found.empty]
    if len(folders) > 1:
        used = {os.path.basename(part_folder) for part_folder in folders}
        try:
            unused += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in used]
        except OSError as error:
            _refuse(error)
    if unused:
        say(f'{len(unused)} files or folders are not images of a class, and are left out: {_listed(unused)}')
    if empty:
        say(f'{len(empty)} class folders have no images: {_listed(empty)}')
    return [found.images for found in all_found]


def _divided_folders(folder: str) -> Optional[List[str]]:
    """The training and the validation folder; None if the images are not split."""
    train = os.path.join(folder, _TRAIN_FOLDER)
    for name in _VALIDATION_FOLDERS:
        if os.path.isdir(train) and os.path.isdir(os.path.join(folder, name)):
            return [train, os.path.join(folder, name)]
    return None


def _readable(
    images: List[List[ImageFile]], reader: '_ImageReader', skip_unreadable: bool, say: Say
) -> Tuple[List[List[ImageFile]], Dict[str, bytes]]:
    """The images that can be decoded, and the digests of their files by path.

    Raises:
      records.DataError: an image cannot be decoded, and may not be skipped.
    """
    unreadable: List[str] = []
    digests: Dict[str, bytes] = {}
    for image in itertools.chain(*images):
        try:
            encoded, _, _ = reader.read(image.path)
            digests[image.path] = digest(encoded)
        except records.DataError as error:
            unreadable.append(str(error))
    if unreadable:
        text = f'{len(unreadable)} images cannot be read: {_listed(unreadable)}'
        if not skip_unreadable:
            raise records.DataError(f'{text}. Repair or remove them, or leave them out with --skip_unreadable.')
        say(f'{text}; they are left out')
    readable = [[image for image in part if image.path in digests] for part in images]
    lost = sorted({image.class_name for image in images[0]} - {image.class_name for image in readable[0]})
    if lost:
        say(f'classes without a readable training image: {_listed(lost)}')
    return readable, digests


def _labels(folder: str, images: List[List[ImageFile]]) -> Dict[str, int]:
    """The labels by the name of the class, in order.

    Raises:
      records.DataError: a class has no training images.
    """
    classes = sorted({image.class_name for image in images[0]})
    without_training = sorted({image.class_name for part in images for image in part} - set(classes))
    if without_training:
        raise records.DataError(
            f'{folder}: validation images of classes without training images: {_listed(without_training)}.'
        )
    return {name: label for label, name in enumerate(classes, 1)}


def _split(
    images: List[List[ImageFile]],
    labels: Dict[str, int],
    digests: Dict[str, bytes],
    validation_fraction: float,
    say: Say,
) -> Tuple[List[ImageFile], List[ImageFile]]:
    """The training and the validation images, each in an order that mixes the classes."""

    def split(part: Sequence[ImageFile], fraction: float) -> List[List[ImageFile]]:
        indices = split_by_content(
            [digests[image.path] for image in part], [labels[image.class_name] for image in part], fraction
        )
        return [[part[index] for index in share] for share in indices]

    if len(images) == 1:
        train, validation = split(images[0], validation_fraction)
        return train, validation
    # Split only for the order: a shuffle buffer cannot mix images that are sorted by class.
    (train, _), (validation, _) = split(images[0], 0.0), split(images[1], 0.0)
    seen = {digests[image.path] for image in train}
    both = [image.path for image in validation if digests[image.path] in seen]
    if both:
        say(f'{len(both)} validation images are also training images, which overstates the accuracy: {_listed(both)}')
    return train, validation


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ', '.join(names[:_NAMED_AT_MOST]) + (f' and {more} more' if more > 0 else '')


class _ImageReader:
    """Reads image files, and checks that the input pipeline can decode them."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._shape = tf.shape(decode_image(self._encoded))
        self._session = tf.compat.v1.Session(graph=graph)

    def read(self, path: str) -> Tuple[bytes, int, int]:
        """The bytes, the height and the width of an image file.

        Raises:
          records.DataError: it cannot be read or decoded.
        """
        kind = records.irregular_kind(path)
        if kind and os.path.exists(path):
            # Opening a pipe would block forever.
            raise records.DataError(f'{path} ({kind})')
        try:
            with open(path, 'rb') as file:
                encoded = file.read()
            height, width, _ = self._session.run(self._shape, {self._encoded: encoded})
        except OSError as error:
            raise records.DataError(f'{path} ({error.strerror})')
        except tf.errors.InvalidArgumentError:
            raise records.DataError(f'{path} (damaged, or not in the format of its extension)')
        return encoded, int(height), int(width)

    def example(self, image: ImageFile, label: int) -> tf.train.Example:
        """The Example of an image."""
        encoded, height, width = self.read(image.path)
        return tf_example.make_example(
            encoded,
            tf_example.format_of(encoded),
            label,
            image.class_name,
            height,
            width,
            os.path.basename(image.path),
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=processes.command_name('data.from_folder'),
        description=__doc__,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('folder', help='the images, in a folder per class')
    parser.add_argument('data_dir', help='new folder for the record files')
    parser.add_argument(
        '--validation_fraction', type=float, default=0.1, help='share of each class for validation (default 0.1)'
    )
    parser.add_argument('--train_shards', type=int, default=16, help='number of training files (default 16)')
    parser.add_argument('--validation_shards', type=int, default=4, help='number of validation files (default 4)')
    parser.add_argument(
        '--skip_unreadable', action='store_true', help='leave out images that cannot be decoded, instead of stopping'
    )
    arguments = parser.parse_args(expanded())
    if not 0 < arguments.validation_fraction < 1:
        parser.error(f'--validation_fraction={arguments.validation_fraction}: must be between 0 and 1.')
    if min(arguments.train_shards, arguments.validation_shards) < 1:
        parser.error('--train_shards and --validation_shards: must be at least 1.')
    return arguments


def main() -> int:
    """Converts the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> None:
        info = import_folder(say=lambda line: print(line, file=sys.stderr), **vars(arguments))
        print(
            f'{info.train_images} training and {info.validation_images} validation images of '
            f'{info.num_classes - 1} classes in {arguments.data_dir}'
        )

    return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
