"""Converts JPEG, PNG, GIF, BMP, WebP and TIFF images, in a folder per class, to record files.

The images are in FOLDER/CLASS/, or, if they are already split, in FOLDER/train/CLASS/ and FOLDER/validation/CLASS/ (or
val, valid, dev, eval or test), or in FOLDER/CLASS/ and in CLASS/ of --validation_folder; or a table names the class of
each image in FOLDER. Classes are numbered from 1, in the order of their names; 0 is the background. The way that the
folders are understood is printed first; --dry_run prints it and writes nothing.

Each image is decoded whole. JPEG and PNG files are stored as they are. Images with an EXIF orientation are turned
upright, transparent ones are laid on white, and other formats are converted. The files that are left out or refused
are listed with the reasons in DATA_DIR.refused.tsv.
"""

import argparse
import collections
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
from data import encoding, image_files, records
from data.convert import class_folders, conversion, label_table, writing
from data.convert.class_folders import ImageFile, ImageSet
from data.convert.intake import Intake
from data.convert.refused import RefusedFiles, listed
from data.convert.split import digest, split_by_content
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.image_files import UnreadableError, show

# Classes that are listed without --dry_run.
_CLASSES_AT_MOST = 20

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
    no_splits: bool = False,
    labels: Optional[str] = None,
    file_column: str = '',
    label_column: str = '',
    dry_run: bool = False,
) -> Optional[DatasetInfo]:
    """Converts a folder of class folders, or of images with a table of labels, to a data set.

    Args:
      folder: the images, split into train/ and validation/ or not.
      data_dir: the folder for the data set, which must be missing or empty.
      validation_fraction: the share of each class that becomes validation images, if they are not split; 0: none.
      train_shards: the number of training files.
      validation_shards: the number of validation files.
      skip_unreadable: leave out images that cannot be used, instead of stopping.
      say: called with messages about the progress; first with the way that the folder is understood.
      validation_folder: another folder of class folders, with the validation images; None without.
      no_splits: the folders in `folder` are classes, whatever their names and subfolders.
      labels: a table of the files' labels; None without.
      file_column: of `labels`, as in `label_table.find_images`.
      label_column: of `labels`, as in `label_table.find_images`.
      dry_run: say how the folder is understood, and write nothing.

    Returns:
      The description of the data set, as in its `dataset.json`; None for a `dry_run`.

    Raises:
      records.DataError: the folders are ambiguous, there are no images, a split has none, there is only one class, a
        validation class has no training images, images cannot be used, a class loses most of its images, a folder
        cannot be listed, or `data_dir` is not empty or cannot be made.
    """
    writing.check_can_be_made(data_dir)
    if labels is not None:
        found = label_table.find_images(labels, folder, file_column, label_column, skip_unreadable)
    else:
        found = class_folders.find_images(folder, validation_folder, no_splits)
    say('\n'.join(_understood(found, None if dry_run else _CLASSES_AT_MOST)))
    numbers = _labels(validation_folder or folder, found.splits)
    _check_losses(folder, found.splits, found.lost)
    if dry_run:
        return None
    refused = RefusedFiles(data_dir)
    _report_left_out(found, refused, say)
    intake = Intake()
    images, judged = _readable(folder, found, intake, refused, skip_unreadable, say)
    train, validation = _split(images, numbers, judged, validation_fraction, say)
    _check_not_empty(folder, train, validation, validation_fraction if len(images) == 1 else None)
    parts = [(records.TRAIN, train, train_shards), (records.VALIDATION, validation, validation_shards)]
    info = DatasetInfo(
        name=os.fsencode(os.path.basename(os.path.abspath(folder))).decode(errors='replace'),
        source='a folder of images',
        train_images=len(train),
        validation_images=len(validation),
        num_classes=len(numbers) + 1,
        class_names=['background', *numbers],
    )
    written = {name: SplitFingerprint() for name, _, _ in parts}
    parts = [part for part in parts if part[1]]
    with writing.new_data_dir(data_dir) as unfinished, conversion.progress() as progress:
        for name, part, shards in parts:
            counter, move = itertools.count(1), progress(f'writing {name} images', len(part))
            examples = [
                functools.partial(_example, image, numbers[image.class_name], judged[image.path], intake, move, counter)
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


def _understood(found: ImageSet, classes_at_most: Optional[int]) -> Iterator[str]:
    """Yields lines that say which images and classes were found, with a path of each; all classes if at most None."""
    yield from found.notes
    for name, images in zip(['train', 'validation'] if len(found.splits) > 1 else ['not split'], found.splits):
        first: Dict[str, str] = {}
        for image in images:
            first.setdefault(image.class_name, image.path)
        counts = collections.Counter(image.class_name for image in images)
        yield f'{name}: {counted(len(images), "image")} of {counted(len(counts), "class", "classes")}'
        for class_name in sorted(counts)[:classes_at_most]:
            yield f'  {show(class_name)}: {counted(counts[class_name], "image")}, as {show(first[class_name])}'
        if classes_at_most and len(counts) > classes_at_most:
            yield f'  and {len(counts) - classes_at_most:,} more, which --dry_run lists'
    reasons = collections.Counter(reason for _, reason in found.left_out)
    for reason in sorted(reasons):
        yield f'left out: {counted(reasons[reason], "file or folder", "files or folders")} ({reason})'


def _report_left_out(found: ImageSet, refused: RefusedFiles, say: Say) -> None:
    """Names the files that are left out, and the empty class folders, in messages and in the list of refused files."""
    left_out = [*found.left_out, *((path, 'a class folder without images') for path in found.empty)]
    if left_out:
        refused.add(left_out)
    for reason in sorted({reason for _, reason in found.left_out}):
        paths = [path for path, each in found.left_out if each == reason]
        what = counted(len(paths), 'file or folder', 'files or folders')
        say(f'{what} left out ({reason}): {listed(paths)}{refused.where(paths)}')
    if found.empty:
        what = counted(len(found.empty), 'class folder')
        say(f'{what} without images: {listed(found.empty)}{refused.where(found.empty)}')


def _check_losses(folder: str, kept: Sequence[Sequence[ImageFile]], lost: Sequence[Sequence[ImageFile]]) -> None:
    """Checks that each class keeps at least half of its files, in each split.

    Raises:
      records.DataError: a class loses more.
    """
    problems = []
    for images, losses in zip(kept, lost):
        counts = collections.Counter(image.class_name for image in images)
        for name, count in sorted(collections.Counter(image.class_name for image in losses).items()):
            if count > counts[name]:
                example = next(image.path for image in losses if image.class_name == name)
                problems.append(f'{show(name)} ({count:,} of {count + counts[name]:,}, as {show(example)})')
    if problems:
        raise records.DataError(
            f'{show(folder)}: classes of which most images are missing or cannot be used: {listed(problems)}. Convert '
            'or repair these files, or remove them.'
        )


class _Judged(NamedTuple):
    """An image file that can be used: the digest and the size of its stored image, and whether that is the file."""

    digest: bytes
    height: int
    width: int
    is_changed: bool


def _readable(
    folder: str, found: ImageSet, intake: Intake, refused: RefusedFiles, skip_unreadable: bool, say: Say
) -> Tuple[List[List[ImageFile]], Dict[str, _Judged]]:
    """The images that can be used, and the judgements by path.

    Raises:
      records.DataError: an image cannot be used, and may not be skipped; or a class loses most of its images.
    """
    unreadable: List[Tuple[str, str]] = []
    judged: Dict[str, _Judged] = {}
    notes: Dict[str, List[str]] = {}
    paths = [image.path for image in itertools.chain(*found.splits)]
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
    readable = [[image for image in part if image.path in judged] for part in found.splits]
    if unreadable:
        refused.add(unreadable)
        lost = [[image for image in part if image.path not in judged] for part in found.splits]
        _check_losses(folder, readable, [[*a, *b] for a, b in zip(lost, found.lost)])
        reasons = [f'{show(path)} {reason}' for path, reason in unreadable]
        text = f'{counted(len(unreadable), "image")} cannot be used: {listed(reasons)}{refused.where(reasons)}'
        if not skip_unreadable:
            raise records.DataError(f'{text}. Repair or remove them, or leave them out with --skip_unreadable.')
        say(f'{text}; left out')
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
    return encoding.make_example(
        encoded,
        encoding.format_of(encoded),
        label,
        image.class_name,
        judged.height,
        judged.width,
        os.path.basename(image.path),
    )


def _labels(folder: str, images: List[List[ImageFile]]) -> Dict[str, int]:
    """The labels by the name of the class, in order.

    Raises:
      records.DataError: a class has no training images, or there is only one class.
    """
    classes = sorted({image.class_name for image in images[0]})
    without_training = sorted({image.class_name for part in images for image in part} - set(classes))
    if without_training:
        raise records.DataError(
            f'{folder}: validation images of classes without training images: {listed(without_training)}. The classes '
            f'with training images: {listed(classes)}.'
        )
    if len(classes) == 1:
        raise records.DataError(
            f'{show(folder)}: all training images are of one class, {show(classes[0])}. A network learns to tell '
            'classes apart: name a folder that holds a folder for each of two classes or more.'
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
    parser = new_parser('from-folder', __doc__)
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
    parser.add_argument(
        '--no_splits', action='store_true', help='the folders are classes, even if they look like splits'
    )
    parser.add_argument('--labels', metavar='FILE', help='a CSV file that names the class of each image in the folder')
    parser.add_argument('--file_column', default='', help="name or number of the column of files, as 'filename'")
    parser.add_argument('--label_column', default='', help="name or number of the column of labels, as 'label'")
    parser.add_argument('--dry_run', action='store_true', help='show how the folder is understood, and write nothing')
    parser.add_argument('--train_shards', type=int, default=16, help='number of training files (default 16)')
    parser.add_argument('--validation_shards', type=int, default=4, help='number of validation files (default 4)')
    parser.add_argument(
        '--skip_unreadable', action='store_true', help='leave out images that cannot be used, instead of stopping'
    )
    arguments = parser.parse_args(expanded())
    if arguments.validation_fraction is None:
        arguments.validation_fraction = 0.1 if arguments.validation_folder is None else 0.0
    elif arguments.validation_folder is not None:
        parser.error('--validation_fraction, --validation_folder: give one of the two.')
    if arguments.labels is not None and (arguments.validation_folder is not None or arguments.no_splits):
        parser.error('--labels: a table has no splits; leave out --validation_folder and --no_splits.')
    if (arguments.file_column or arguments.label_column) and arguments.labels is None:
        parser.error('--file_column, --label_column: are columns of --labels, which is missing.')
    if not 0 <= arguments.validation_fraction < 1:
        parser.error(f'--validation_fraction={arguments.validation_fraction}: must be 0 or between 0 and 1.')
    if min(arguments.train_shards, arguments.validation_shards) < 1:
        parser.error('--train_shards and --validation_shards: must be at least 1.')
    return arguments


def main() -> int:
    """Converts the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> None:
        output = sys.stdout if arguments.dry_run else sys.stderr
        info = import_folder(say=lambda line: print(line, file=output), **vars(arguments))
        if info is None:
            return
        print(
            f'{info.train_images} training and {counted(info.validation_images, "validation image")} of '
            f'{counted(info.num_classes - 1, "class", "classes")} in {arguments.data_dir}'
        )

    with native_messages.captured():
        return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
