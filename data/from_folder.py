"""A data set of one's own: a folder of class folders of JPEG and PNG images, as record files.

The images lie in FOLDER/CLASS/, or in FOLDER/train/CLASS/ and FOLDER/validation/CLASS/ (or FOLDER/val/CLASS/)
if they are divided already. Classes are numbered from 1 on, by name; 0 is the background.
"""

import argparse
import dataclasses
import functools
import itertools
import os
import sys
from typing import Callable, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

import tensorflow as tf

from data import records
from data.dataset_info import DatasetInfo
from data.fingerprint import fingerprint
from data.split import digest, split_by_content
from preprocessing.decoding import decode_image

EXTENSIONS = ('.jpg', '.jpeg', '.png')
_NAMED_AT_MOST = 10

# The folders of images that are divided already; the second may have either name.
_TRAIN_FOLDER = 'train'
_VALIDATION_FOLDERS = ('validation', 'val')


class ImageFile(NamedTuple):
    """An image of the folder, and its class."""

    path: str
    class_name: str


class Found(NamedTuple):
    """What is in a folder of class folders, in order.

    Attributes:
      images: the images.
      others: files and folders that are of no use.
      empty: class folders without images that are not among the others.
    """

    images: List[ImageFile]
    others: List[str]
    empty: List[str]


def find_images(folder: str) -> Found:
    """The images in a folder of class folders, and what else is there.

    Hidden files and folders are passed over.

    Raises:
      records.DataError: the folder does not exist, or has no class folder with an image; or a folder cannot be listed.
    """
    if not os.path.isdir(folder):
        raise records.DataError(f'{folder}: no such folder.')
    images, others = [], []
    classes: List[str] = []
    visited: Set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith('.'))
        if os.path.realpath(parent) in visited:
            # A link to where the walk has been, which may lead round in a circle.
            folders[:] = []
            others.append(parent)
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
                others.append(path)
    if not images:
        raise records.DataError(
            f'{folder}: no images. They lie in a folder per class, and end in {", ".join(EXTENSIONS)}.'
        )
    empty = {os.path.join(folder, name) for name in {*classes} - {image.class_name for image in images}}
    return Found(images, others, sorted(empty - {*others}))


def _refuse(error: OSError) -> NoReturn:
    raise records.DataError(
        f'{error.filename}: cannot be listed: {error.strerror}. Its images would be missing: make it readable, or '
        'remove it.'
    )


def import_folder(
    folder: str,
    data_dir: str,
    validation_fraction: float,
    train_shards: int,
    validation_shards: int,
    skip_unreadable: bool,
    say: Callable[[str], None],
) -> DatasetInfo:
    """Writes the images of a folder of class folders as a data set.

    Args:
      folder: the images, divided into train/ and validation/ or not.
      data_dir: the folder to make; it must not exist, or be empty.
      validation_fraction: the share of each class that becomes validation images, if they are not divided.
      train_shards: the number of training files.
      validation_shards: the number of validation files.
      skip_unreadable: leave out images that cannot be decoded, rather than stop.
      say: is told what happens, in lines.

    Returns:
      The description that was written, too, as `dataset.json`.

    Raises:
      records.DataError: there are no images, a split has none, the splits' classes differ, images cannot be
        decoded, a folder cannot be listed, or `data_dir` holds something or cannot be made.
    """
    records.check_can_be_made(data_dir)
    reader = _ImageReader()
    folders = _divided_folders(folder) or [folder]
    images: List[List[ImageFile]] = []
    others: List[str] = []
    empty: List[str] = []
    for part_folder in folders:
        found = find_images(part_folder)
        images.append(found.images)
        others += found.others
        empty += found.empty
    if len(folders) > 1:
        used = {os.path.basename(part_folder) for part_folder in folders}
        try:
            others += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in used]
        except OSError as error:
            _refuse(error)
    if others:
        say(f'{len(others)} files or folders are of no use here, and are left out: {_listed(others)}')
    if empty:
        say(f'{len(empty)} class folders have no images: {_listed(empty)}')

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
            raise records.DataError(f'{text}. Mend or remove them, or leave them out with --skip_unreadable.')
        say(f'{text}; they are left out')
    found_classes = {image.class_name for image in images[0]}
    images = [[image for image in part if image.path in digests] for part in images]

    classes = sorted({image.class_name for image in images[0]})
    unseen = sorted({image.class_name for part in images for image in part} - set(classes))
    if unseen:
        raise records.DataError(f'{folder}: validation images of classes without training images: {_listed(unseen)}.')
    lost = sorted(found_classes - set(classes))
    if lost:
        say(f'classes of which no image can be read are left out: {_listed(lost)}')
    labels = {name: label for label, name in enumerate(classes, 1)}

    def split(part: Sequence[ImageFile], fraction: float) -> List[List[ImageFile]]:
        indices = split_by_content(
            [digests[image.path] for image in part], [labels[image.class_name] for image in part], fraction
        )
        return [[part[index] for index in share] for share in indices]

    if len(images) == 1:
        train, validation = split(images[0], validation_fraction)
    else:
        # Split at nothing, for the order: one class after the other is more than a shuffle buffer can mix.
        (train, _), (validation, _) = split(images[0], 0.0), split(images[1], 0.0)
        seen = {digests[image.path] for image in train}
        both = [image.path for image in validation if digests[image.path] in seen]
        if both:
            say(f'{len(both)} validation images are training images, too, and flatter the result: {_listed(both)}')
    parts = (
        (records.TRAIN, train, train_shards),
        (records.VALIDATION, validation, validation_shards),
    )
    for name, part, _ in parts:
        if not part:
            raise records.DataError(
                f'{folder}: no {name} images are left; there must be some for each split. --validation_fraction='
                f'{validation_fraction:g} is taken of the different images of each class, to the nearest whole number.'
            )

    info = DatasetInfo(
        name=os.path.basename(os.path.abspath(folder)),
        source='a folder of images',
        train_images=len(train),
        validation_images=len(validation),
        num_classes=len(classes) + 1,
        class_names=['background', *classes],
    )
    written = []
    with records.new_data_dir(data_dir) as unfinished:
        for name, part, shards in parts:
            examples = [functools.partial(reader.example, image, labels[image.class_name]) for image in part]
            written.append(records.write_shards(unfinished, name, examples, min(shards, len(part))))
            say(f'{len(part)} {name} images written')
        info = dataclasses.replace(info, fingerprint=fingerprint(*written))
        info.write(unfinished)
    return info


def _divided_folders(folder: str) -> Optional[List[str]]:
    """The training and the validation folder of images that are divided already; None if they are not."""
    train = os.path.join(folder, _TRAIN_FOLDER)
    for name in _VALIDATION_FOLDERS:
        if os.path.isdir(train) and os.path.isdir(os.path.join(folder, name)):
            return [train, os.path.join(folder, name)]
    return None


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ', '.join(names[:_NAMED_AT_MOST]) + (f' and {more} more' if more > 0 else '')


class _ImageReader:
    """Reads image files, and makes sure that they can be decoded as the input pipeline will decode them."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._shape = tf.shape(decode_image(self._encoded))
        self._session = tf.compat.v1.Session(graph=graph)

    def read(self, path: str) -> Tuple[bytes, int, int]:
        """The bytes, the height and the width of an image file."""
        what = records.no_file(path)
        if what and os.path.exists(path):
            # Who opens a pipe waits for ever.
            raise records.DataError(f'{path} ({what})')
        try:
            with open(path, 'rb') as file:
                encoded = file.read()
            height, width, _ = self._session.run(self._shape, {self._encoded: encoded})
        except OSError as error:
            raise records.DataError(f'{path} ({error.strerror})')
        except tf.errors.InvalidArgumentError:
            raise records.DataError(f'{path} (broken, or not what its name says)')
        return encoded, int(height), int(width)

    def example(self, image: ImageFile, label: int) -> tf.train.Example:
        """The example of an image."""
        encoded, height, width = self.read(image.path)
        return records.make_example(
            encoded,
            records.format_of(encoded),
            label,
            image.class_name,
            height,
            width,
            os.path.basename(image.path),
        )


def main() -> None:
    """Imports the folder named on the command line."""
    parser = argparse.ArgumentParser(
        prog='python -m data.from_folder', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('folder', help='the images, in a folder per class')
    parser.add_argument('data_dir', help='the folder to make, for the record files')
    parser.add_argument(
        '--validation_fraction', type=float, default=0.1, help='share of each class for validation (default 0.1)'
    )
    parser.add_argument('--train_shards', type=int, default=16, help='training files (default 16)')
    parser.add_argument('--validation_shards', type=int, default=4, help='validation files (default 4)')
    parser.add_argument(
        '--skip_unreadable', action='store_true', help='leave out images that cannot be decoded, rather than stop'
    )
    arguments = parser.parse_args()
    if not 0 < arguments.validation_fraction < 1:
        parser.error(f'--validation_fraction={arguments.validation_fraction}: must be between 0 and 1.')
    if min(arguments.train_shards, arguments.validation_shards) < 1:
        parser.error('--train_shards and --validation_shards: must be at least 1.')
    try:
        info = import_folder(say=lambda line: print(line, file=sys.stderr), **vars(arguments))
    except records.DataError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, 'interrupted; nothing was written\n')
    print(
        f'{info.train_images} training and {info.validation_images} validation images of '
        f'{info.num_classes - 1} classes in {arguments.data_dir}'
    )


if __name__ == '__main__':
    main()
