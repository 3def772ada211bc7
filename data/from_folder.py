"""Converts JPEG, PNG, GIF, BMP and WebP images, in a folder per class, to record files.

The images are in FOLDER/CLASS/, or, if they are already split, in FOLDER/train/CLASS/ and FOLDER/validation/CLASS/ (or
FOLDER/val/CLASS/), or in FOLDER/CLASS/ and in CLASS/ of --validation_folder. Classes are numbered from 1, in the order
of their names; 0 is the background.

Each image is decoded whole. JPEG and PNG files are stored as they are. Images with an EXIF orientation are turned
upright, transparent ones are laid on white, and GIF, BMP and WebP images are converted. The files that are left out or
refused are listed with the reasons in DATA_DIR.refused.tsv.
"""

import argparse
import dataclasses
import functools
import itertools
import os
import sys
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from console import native_messages, program
from console.command_line import new_parser
from console.messages import counted
from console.paths import expanded
from console.screen import Screen
from console.tensorflow_versions import tf
from data import class_folders, conversion, image_files, records, tf_example, writing
from data.class_folders import ImageFile
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.image_files import EXTENSIONS, UnreadableError, show
from data.intake import Intake
from data.refused import RefusedFiles, listed
from data.split import digest, split_by_content

_UNUSED = (
    f'is not in a class folder, leads to a folder that is read already, or does not end in {", ".join(EXTENSIONS)}'
)

Say = Callable[[str], None]


def import_folder(
    folder: str,
    data_dir: str,
    validation_fraction: float,
    train_shards: int,
    validation_shards: int,
    skip_unreadable: bool,
    say: Say,
    validation_folder: Optional[str] = None,
) -> DatasetInfo:
    """Converts a folder of class folders to a data set.

    Args:
      folder: the images, split into train/ and validation/ or not.
      data_dir: the folder for the data set, which must be missing or empty.
      validation_fraction: the share of each class that becomes validation images, if they are not split; 0: none.
      train_shards: the number of training files.
      validation_shards: the number of validation files.
      skip_unreadable: leave out images that cannot be used, instead of stopping.
      say: called with messages about the progress.
      validation_folder: another folder of class folders, with the validation images; None without.

    Returns:
      The description of the data set, as in its `dataset.json`.

    Raises:
      records.DataError: there are no images, a split has none, a validation class has no training images, images
        cannot be used, a folder cannot be listed, or `data_dir` is not empty or cannot be made.
    """
    writing.check_can_be_made(data_dir)
    refused = RefusedFiles(data_dir)
    intake = Intake()
    images = _find_all(folder, validation_folder, refused, say)
    images, judged = _readable(images, intake, refused, skip_unreadable, say)
    labels = _labels(validation_folder or folder, images)
    train, validation = _split(images, labels, judged, validation_fraction, say)
    _check_not_empty(folder, train, validation, validation_fraction if len(images) == 1 else None)
    parts = [(records.TRAIN, train, train_shards), (records.VALIDATION, validation, validation_shards)]
    info = DatasetInfo(
        name=os.path.basename(os.path.abspath(folder)),
        source='a folder of images',
        train_images=len(train),
        validation_images=len(validation),
        num_classes=len(labels) + 1,
        class_names=['background', *labels],
    )
    written = {name: SplitFingerprint() for name, _, _ in parts}
    parts = [part for part in parts if part[1]]
    with writing.new_data_dir(data_dir) as unfinished, conversion.progress() as progress:
        for name, part, shards in parts:
            counter, move = itertools.count(1), progress(f'writing {name} images', len(part))
            examples = [
                functools.partial(_example, image, labels[image.class_name], judged[image.path], intake, move, counter)
                for image in part
            ]
            written[name] = writing.write_shards(unfinished, name, examples, min(shards, len(part)))
        info = dataclasses.replace(info, fingerprint=fingerprint(*written.values())).write(unfinished)
    for name, part, _ in parts:
        say(f'{counted(len(part), f"{name} image")} written')
    return info


def _check_not_empty(
    folder: str, train: Sequence[ImageFile], validation: Sequence[ImageFile], fraction: Optional[float]
) -> None:
    """Checks that both splits have images; `fraction` of them was to be for validation, None if they were split.

    Raises:
      records.DataError: a split has none.
    """
    for name, part in ((records.TRAIN, train), (records.VALIDATION, validation)):
        if not part and (name == records.TRAIN or fraction != 0):
            reason = '' if fraction is None else f' --validation_fraction={fraction:g} is the share of the distinct '
            reason += reason and 'images of each class, rounded to a whole number; 0 makes no validation split.'
            raise records.DataError(f'{folder}: no {name} images are left; each split needs some.{reason}')


def _find_all(folder: str, validation_folder: Optional[str], refused: RefusedFiles, say: Say) -> List[List[ImageFile]]:
    """The images of the training and the validation folder, or all images if they are not split.

    Raises:
      records.DataError: as `find_images`; or there are two validation folders.
    """
    divided = class_folders.divided(folder)
    if divided and validation_folder:
        raise records.DataError(
            f'--validation_folder={validation_folder}: {folder} has validation images of its own, in {divided[1]}. To '
            f'leave them out, name {divided[0]} instead.'
        )
    folders = divided or [folder, *([validation_folder] if validation_folder else [])]
    all_found = [class_folders.find_images(part_folder) for part_folder in folders]
    unused = [path for found in all_found for path in found.unused]
    empty = [path for found in all_found for path in found.empty]
    if divided:
        used = {os.path.basename(part_folder) for part_folder in folders}
        try:
            unused += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in used]
        except OSError as error:
            class_folders.refuse(error)
    if unused:
        refused.add((path, _UNUSED) for path in unused)
        what = counted(len(unused), 'file or folder', 'files or folders')
        say(f'{what} without an image of a class left out: {listed(unused)}{refused.where(unused)}')
    if empty:
        refused.add((path, 'is a class folder without images') for path in empty)
        say(f'{counted(len(empty), "class folder")} without images: {listed(empty)}{refused.where(empty)}')
    return [found.images for found in all_found]


class _Judged(NamedTuple):
    """An image file that can be used: the digest and the size of its stored image, and whether that is the file."""

    digest: bytes
    height: int
    width: int
    is_changed: bool


def _readable(
    images: List[List[ImageFile]], intake: Intake, refused: RefusedFiles, skip_unreadable: bool, say: Say
) -> Tuple[List[List[ImageFile]], Dict[str, _Judged]]:
    """The images that can be used, and the judgements by path.

    Raises:
      records.DataError: an image cannot be used, and may not be skipped.
    """
    unreadable: List[Tuple[str, str]] = []
    judged: Dict[str, _Judged] = {}
    notes: Dict[str, List[str]] = {}
    paths = [image.path for image in itertools.chain(*images)]
    with conversion.progress() as progress:
        move = progress('reading images', len(paths))
        for done, path in enumerate(paths, 1):
            try:
                encoded = image_files.read(path)
                accepted = intake.accept(encoded)
                is_changed = accepted.encoded != encoded
                judged[path] = _Judged(digest(accepted.encoded), accepted.height, accepted.width, is_changed)
                for note in accepted.notes:
                    notes.setdefault(note, []).append(path)
            except UnreadableError as error:
                unreadable.append((path, str(error)))
            move(done)
    for note, noted in sorted(notes.items()):
        say(f'{counted(len(noted), "image")} {note}: {listed(noted)}')
    if unreadable:
        refused.add(unreadable)
        reasons = [f'{show(path)} {reason}' for path, reason in unreadable]
        text = f'{counted(len(unreadable), "image")} cannot be used: {listed(reasons)}{refused.where(reasons)}'
        if not skip_unreadable:
            raise records.DataError(f'{text}. Repair or remove them, or leave them out with --skip_unreadable.')
        say(f'{text}; left out')
    readable = [[image for image in part if image.path in judged] for part in images]
    lost = sorted({image.class_name for image in images[0]} - {image.class_name for image in readable[0]})
    if lost:
        say(f'classes without a readable training image: {listed(lost)}')
    return readable, judged


def _example(
    image: ImageFile, label: int, judged: _Judged, intake: Intake, move: conversion.Progress, counter: Iterator[int]
) -> tf.train.Example:
    """The Example of an image that has been judged.

    Raises:
      records.DataError: the file has changed since.
    """
    try:
        encoded = image_files.read(image.path)
        if judged.is_changed:
            encoded = intake.accept(encoded).encoded
    except UnreadableError as error:
        raise records.DataError(f'{show(image.path)} {error}; it was changed during the conversion.')
    if digest(encoded) != judged.digest:
        raise records.DataError(f'{show(image.path)} was changed during the conversion. Run the same command again.')
    move(next(counter))
    return tf_example.make_example(
        encoded,
        tf_example.format_of(encoded),
        label,
        image.class_name,
        judged.height,
        judged.width,
        os.path.basename(image.path),
    )


def _labels(folder: str, images: List[List[ImageFile]]) -> Dict[str, int]:
    """The labels by the name of the class, in order.

    Raises:
      records.DataError: a class has no training images.
    """
    classes = sorted({image.class_name for image in images[0]})
    without_training = sorted({image.class_name for part in images for image in part} - set(classes))
    if without_training:
        raise records.DataError(
            f'{folder}: validation images of classes without training images: {listed(without_training)}. The classes '
            f'with training images: {listed(classes)}.'
        )
    return {name: label for label, name in enumerate(classes, 1)}


def _split(
    images: List[List[ImageFile]],
    labels: Dict[str, int],
    judged: Dict[str, _Judged],
    validation_fraction: float,
    say: Say,
) -> Tuple[List[ImageFile], List[ImageFile]]:
    """The training and the validation images, each in an order that mixes the classes."""

    def split(part: Sequence[ImageFile], fraction: float) -> List[List[ImageFile]]:
        indices = split_by_content(
            [judged[image.path].digest for image in part], [labels[image.class_name] for image in part], fraction
        )
        return [[part[index] for index in share] for share in indices]

    if len(images) == 1:
        train, validation = split(images[0], validation_fraction)
        return train, validation
    # Split only for the order: a shuffle buffer cannot mix images that are sorted by class.
    (train, _), (validation, _) = split(images[0], 0.0), split(images[1], 0.0)
    seen = {judged[image.path].digest for image in train}
    both = [image.path for image in validation if judged[image.path].digest in seen]
    if both:
        what = counted(len(both), 'validation image')
        say(f'{what} also for training, which overstates the accuracy: {listed(both)}')
    return train, validation


def _arguments() -> argparse.Namespace:
    parser = new_parser('data.from_folder', __doc__)
    parser.add_argument('folder', help='the images, in a folder per class')
    parser.add_argument('data_dir', help='new folder for the record files')
    parser.add_argument(
        '--validation_fraction',
        type=float,
        help='share of each class for validation (default 0.1); 0: no validation images',
    )
    parser.add_argument(
        '--validation_folder', help='validation images, in a folder per class; all others are trained on'
    )
    parser.add_argument('--train_shards', type=int, default=16, help='number of training files (default 16)')
    parser.add_argument('--validation_shards', type=int, default=4, help='number of validation files (default 4)')
    parser.add_argument(
        '--skip_unreadable', action='store_true', help='leave out images that cannot be used, instead of stopping'
    )
    arguments = parser.parse_args(expanded())
    if arguments.validation_fraction is None:
        arguments.validation_fraction = 0.0 if arguments.validation_folder else 0.1
    elif arguments.validation_folder:
        parser.error('--validation_fraction, --validation_folder: give one of the two.')
    if not 0 <= arguments.validation_fraction < 1:
        parser.error(f'--validation_fraction={arguments.validation_fraction}: must be 0 or between 0 and 1.')
    if min(arguments.train_shards, arguments.validation_shards) < 1:
        parser.error('--train_shards and --validation_shards: must be at least 1.')
    return arguments


def main() -> int:
    """Converts the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> None:
        info = import_folder(say=lambda line: print(line, file=sys.stderr), **vars(arguments))
        print(
            f'{info.train_images} training and {counted(info.validation_images, "validation image")} of '
            f'{counted(info.num_classes - 1, "class", "classes")} in {arguments.data_dir}'
        )

    with native_messages.captured():
        return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
