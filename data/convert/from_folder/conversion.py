"""Converts a folder of class folders, or of images with a table of labels, to a data set."""

import collections
import contextlib
import dataclasses
import functools
import os
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from console import outputs
from console.messages import counted
from console.screen import failure
from console.tensorflow_versions import tf
from data import encoding, image_files
from data.convert import conversion, writing
from data.convert.conversion import listed
from data.convert.from_folder import class_folders, label_table
from data.convert.from_folder.class_folders import ImageFile, ImageSet
from data.convert.intake import Intake
from data.convert.split import digest, split_by_content
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.fingerprint import SplitFingerprint, fingerprint
from data.image_files import UnreadableError, show
from data.records import TRAIN, VALIDATION, DataError

# Classes that are listed without --dry_run.
_CLASSES_AT_MOST = 20
# The list of files that are not in the data set is beside its folder, so that it stays if no data set is made.
_REFUSED_ENDING = '.refused.tsv'

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
      DataError: the folders are ambiguous, there are no images, a split has none, there is only one class, a
        validation class has no training images, images cannot be used, a class loses most of its images, a folder
        cannot be listed, or `data_dir` is not empty or cannot be made.
    """
    writing.check_can_be_made(data_dir)
    if labels is not None:
        found = label_table.find_images(labels, folder, file_column, label_column, skip_unreadable)
    else:
        found = class_folders.find_images(folder, validation_folder, no_splits)
    refused_path = os.path.abspath(data_dir) + _REFUSED_ENDING
    say('\n'.join(_understood(found, dry_run, refused_path)))
    label_of = _labels(validation_folder or folder, found.splits)
    _check_losses(folder, found.splits, found.lost)
    if dry_run:
        return None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.remove(outputs.replaceable(refused_path))
    _write_refused(refused_path, found.left_out)

    intake = Intake()
    splits, judged = _judge(folder, found, intake, skip_unreadable, refused_path, say)
    if len(splits) == 1:
        (all_images,) = splits
        train, validation = _divided(all_images, label_of, judged, validation_fraction)
    else:
        # Divided only for the order: a shuffle buffer cannot mix images that are sorted by class.
        (train, _), (validation, _) = (_divided(images, label_of, judged, 0.0) for images in splits)
        seen = {judged[image.path].digest for image in train}
        both = [image.path for image in validation if judged[image.path].digest in seen]
        if both:
            say(
                f'{counted(len(both), "validation image")} also for training, which overstates the accuracy: '
                f'{listed(both)}'
            )
    for name, images in ((TRAIN, train), (VALIDATION, validation)):
        if not images and (name == TRAIN or len(splits) > 1 or validation_fraction):
            reason = (
                f' --validation_fraction={validation_fraction:g} is the share of the distinct images of each class, '
                'rounded to a whole number; 0 makes no validation split.'
            )
            raise DataError(
                f'{folder}: no {name} images are left; each split needs some.{reason if len(splits) == 1 else ""}'
            )

    info = DatasetInfo(
        name=os.fsencode(os.path.basename(os.path.abspath(folder))).decode(errors='replace'),
        source='a folder of images',
        train_images=len(train),
        validation_images=len(validation),
        num_classes=len(label_of) + 1,
        class_names=['background', *label_of],
    )
    written = {TRAIN: SplitFingerprint(), VALIDATION: SplitFingerprint()}
    with writing.new_data_dir(data_dir) as unfinished, conversion.progress() as progress:
        for name, images, shards in ((TRAIN, train, train_shards), (VALIDATION, validation, validation_shards)):
            if images:
                move = progress(f'writing {name} images', len(images))
                examples = [
                    functools.partial(
                        _example, image, label_of[image.class_name], judged[image.path], intake, move, done
                    )
                    for done, image in enumerate(images, 1)
                ]
                written[name] = writing.write_shards(unfinished, name, examples, min(shards, len(images)))
        info = dataclasses.replace(info, fingerprint=fingerprint(*written.values())).write(unfinished)
    for name, images in ((TRAIN, train), (VALIDATION, validation)):
        if images:
            say(f'{counted(len(images), f"{name} image")} written')
    return info


def _understood(found: ImageSet, dry_run: bool, refused_path: str) -> Iterator[str]:
    """Yields lines that say which images and classes were found, with a path of each, and what is left out."""
    yield from found.notes
    for name, images in zip([TRAIN, VALIDATION] if len(found.splits) > 1 else ['not split'], found.splits):
        first: Dict[str, str] = {}
        for image in images:
            first.setdefault(image.class_name, image.path)
        counts = collections.Counter(image.class_name for image in images)
        yield f'{name}: {counted(len(images), "image")} of {counted(len(counts), "class", "classes")}'
        for class_name in sorted(counts)[: None if dry_run else _CLASSES_AT_MOST]:
            yield f'  {show(class_name)}: {counted(counts[class_name], "image")}, as {show(first[class_name])}'
        if len(counts) > _CLASSES_AT_MOST and not dry_run:
            yield f'  and {len(counts) - _CLASSES_AT_MOST:,} more, which --dry_run lists'
    for reason in sorted({reason for _, reason in found.left_out}):
        paths = [path for path, each in found.left_out if each == reason]
        what = counted(len(paths), 'file or folder', 'files or folders')
        yield f'left out: {what} ({reason}): {listed(paths, "" if dry_run else refused_path)}'


def _write_refused(path: str, refused: Sequence[Tuple[str, str]]) -> None:
    """Lists the files that are not in the data set, with the reasons, if there are any."""
    if refused:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_whole(path, 'path\treason\n' + ''.join(f'{show(each)}\t{reason}\n' for each, reason in refused))
        except (OSError, tf.errors.OpError) as error:
            raise DataError(f'{path}: cannot be written: {failure(error)}.')


def _labels(folder: str, splits: List[List[ImageFile]]) -> Dict[str, int]:
    """The labels by the name of the class, in order."""
    classes = sorted({image.class_name for image in splits[0]})
    untrained = sorted({image.class_name for images in splits for image in images} - {*classes})
    if untrained:
        raise DataError(
            f'{folder}: validation images of classes without training images: {listed(untrained)}. The classes with '
            f'training images: {listed(classes)}.'
        )
    if len(classes) == 1:
        raise DataError(
            f'{show(folder)}: all training images are of one class, {show(classes[0])}. A network learns to tell '
            'classes apart: name a folder that holds a folder for each of two classes or more.'
        )
    return {name: label for label, name in enumerate(classes, 1)}


def _check_losses(folder: str, kept: Sequence[Sequence[ImageFile]], lost: Sequence[Sequence[ImageFile]]) -> None:
    """Checks that each class keeps at least half of its files, in each split."""
    problems = []
    for images, losses in zip(kept, lost):
        counts = collections.Counter(image.class_name for image in images)
        for name, count in sorted(collections.Counter(image.class_name for image in losses).items()):
            if count > counts[name]:
                example = next(image.path for image in losses if image.class_name == name)
                problems.append(f'{show(name)} ({count:,} of {count + counts[name]:,}, as {show(example)})')
    if problems:
        raise DataError(
            f'{show(folder)}: classes of which most images are missing or cannot be used: {listed(problems)}. Convert '
            'or repair these files, or remove them.'
        )


class _Judged(NamedTuple):
    """An image file that can be used: the digest and the size of its stored image, and whether that is the file."""

    digest: bytes
    height: int
    width: int
    is_changed: bool


def _judge(
    folder: str, found: ImageSet, intake: Intake, skip_unreadable: bool, refused_path: str, say: Say
) -> Tuple[List[List[ImageFile]], Dict[str, _Judged]]:
    """The images of each split that can be used, and the judgements by path."""
    unreadable: List[Tuple[str, str]] = []
    judged: Dict[str, _Judged] = {}
    notes: Dict[str, List[str]] = {}
    paths = [image.path for images in found.splits for image in images]
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
    splits = [[image for image in images if image.path in judged] for images in found.splits]
    if unreadable:
        _write_refused(refused_path, [*found.left_out, *unreadable])
        lost = [[image for image in images if image.path not in judged] for images in found.splits]
        _check_losses(folder, splits, [[*a, *b] for a, b in zip(lost, found.lost)])
        reasons = listed([f'{show(path)} {reason}' for path, reason in unreadable], refused_path)
        text = f'{counted(len(unreadable), "image")} cannot be used: {reasons}'
        if not skip_unreadable:
            raise DataError(f'{text}. Repair or remove them, or leave them out with --skip_unreadable.')
        say(f'{text}; left out')
    return splits, judged


def _divided(
    images: Sequence[ImageFile], label_of: Dict[str, int], judged: Dict[str, _Judged], fraction: float
) -> List[List[ImageFile]]:
    """The training and the validation images, each in an order that mixes the classes."""
    digests = [judged[image.path].digest for image in images]
    shares = split_by_content(digests, [label_of[image.class_name] for image in images], fraction)
    return [[images[index] for index in share] for share in shares]


def _example(
    image: ImageFile, label: int, judged: _Judged, intake: Intake, move: conversion.Progress, done: int
) -> tf.train.Example:
    """The Example of an image that has been judged, number `done` of its split."""
    move(done)
    try:
        encoded = image_files.read(image.path)
        if judged.is_changed:
            encoded = intake.accept(encoded).encoded
    except UnreadableError as error:
        raise DataError(f'{show(image.path)} {error}; it was changed during the conversion.')
    if digest(encoded) != judged.digest:
        raise DataError(f'{show(image.path)} was changed during the conversion. Run the same command again.')
    return encoding.make_example(
        encoded,
        encoding.format_of(encoded),
        label,
        image.class_name,
        judged.height,
        judged.width,
        os.path.basename(image.path),
    )
