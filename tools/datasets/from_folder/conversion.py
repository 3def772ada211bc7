"""Converts a folder of class folders, or of images with a table of labels, to a data set."""

import collections
import contextlib
import functools
import itertools
import os
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from compat import tf
from compat.messages import counted, full
from console import outputs
from console.screen import failure
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.records import TRAIN, VALIDATION, DataError
from tools import image_files
from tools.datasets import conversion, image_example, writing
from tools.datasets.classes import ClassImages, alike, remarks
from tools.datasets.conversion import Say
from tools.datasets.from_folder import image_sets
from tools.datasets.from_folder.image_sets import ImageFile, ImageSet
from tools.datasets.from_folder.tables import LabelFile
from tools.datasets.intake import Intake
from tools.datasets.writing import digest, split_by_content
from tools.image_files import UnreadableError, listed

# The most classes that are listed without --dry_run.
_CLASSES_AT_MOST = 20
# The list of files that are not in the data set is beside its folder, so that it stays if no data set is made.
_REFUSED_ENDING = '.refused.tsv'
_NUMBERS = (
    ' The validation labels are numbers, whose meaning a development kit has. Name a table that has the names of the '
    "class folders; of ImageNet, Kaggle's LOC_val_solution.csv has them, and inception-v3 imagenet reads the archives "
    'with the kit.'
)


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
    validation_labels: Optional[str] = None,
) -> Optional[DatasetInfo]:
    """Converts a folder of class folders, or of images with a table of labels, to a data set; returns its description.

    The arguments are those of the command. `say` is called with messages, the first of which explain how the folder is
    understood; with `dry_run`, these are all.
    """
    writing.check_can_be_made(data_dir)
    table, of_validation = (
        LabelFile(path, file_column, label_column, flag) if path is not None else None
        for flag, path in (('--labels', labels), ('--validation_labels', validation_labels))
    )
    found = image_sets.find(folder, validation_folder, no_splits, table, of_validation, skip_unreadable)
    refused_path = os.path.abspath(data_dir) + _REFUSED_ENDING
    say('\n'.join(_understood(found, dry_run, refused_path)))
    label_of = _labels(validation_folder or folder, found.splits)
    is_split = len(found.splits) > 1
    if dry_run:
        _remark(found.splits, validation_fraction, say)
        return None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.remove(outputs.replaceable(refused_path))
    _write_refused(refused_path, found.left_out)

    intake = Intake()
    accepted = _accepted(folder, found, intake, skip_unreadable, refused_path, say)

    def divided(files: Sequence[ImageFile], fraction: float) -> List[List[ImageFile]]:
        """The training and the validation images, each in an order that mixes the classes."""
        usable = [file for file in files if file.path in accepted]
        digests = [accepted[file.path].digest for file in usable]
        shares = split_by_content(digests, [label_of[file.class_name] for file in usable], fraction)
        return [[usable[index] for index in share] for share in shares]

    if is_split:
        # `divided` is called only for the order: a shuffle buffer cannot mix images that are sorted by class.
        images = [divided(split, 0.0)[0] for split in found.splits]
        seen = {accepted[file.path].digest for file in images[0]}
        both = [file.path for file in images[1] if accepted[file.path].digest in seen]
        if both:
            what = counted(len(both), 'validation image')
            say(f'{what} also for training, which overstates the accuracy: {listed(both)}')
    else:
        images = divided(found.splits[0], validation_fraction)
    splits = dict(zip((TRAIN, VALIDATION), images))
    for split, files in splits.items():
        if not files and (split == TRAIN or is_split or validation_fraction):
            reason = (
                f' --validation_fraction={validation_fraction:g} is the share of the distinct images of each class, '
                f'rounded to a whole number, so that a class needs {_least(validation_fraction, split):,} of them; '
                '0 makes no validation split.'
            )
            raise DataError(f'{folder}: no {split} images are left; each split needs some.{"" if is_split else reason}')
    _remark(images, 0.0, say)

    examples = [
        [functools.partial(_example, file, label_of[file.class_name], accepted[file.path], intake) for file in files]
        for files in images
    ]
    name = os.fsencode(os.path.basename(os.path.abspath(folder))).decode(errors='replace')
    shards = train_shards, validation_shards
    with conversion.progress() as progress:
        return writing.write_data_set(data_dir, name, 'a folder of images', [*label_of], examples, shards, progress)


def _least(fraction: float, split: str) -> int:
    """The least number of images of a class with which `split_by_content` gives one to a split."""
    share = fraction if split == VALIDATION else 1 - fraction
    # Python rounds halves to even numbers.
    numbers = itertools.count(max(1, int(0.5 / share) - 1))
    return next(n for n in numbers if (n - round(fraction * n) if split == TRAIN else round(fraction * n)))


def _understood(found: ImageSet, dry_run: bool, refused_path: str) -> Iterator[str]:
    """Yields lines about the images and classes found, with a path for each, and about files that are left out."""
    yield from found.notes
    for name, images in zip([TRAIN, VALIDATION] if len(found.splits) > 1 else ['not split'], found.splits):
        paths: Dict[str, List[str]] = collections.defaultdict(list)
        for image in images:
            paths[image.class_name].append(image.path)
        yield f'{name}: {counted(len(images), "image")} of {counted(len(paths), "class", "classes")}'
        for class_name in sorted(paths)[: None if dry_run else _CLASSES_AT_MOST]:
            of_class = paths[class_name]
            yield f'  {full(class_name)}: {counted(len(of_class), "image")}, as {full(of_class[0])}'
        if len(paths) > _CLASSES_AT_MOST and not dry_run:
            yield f'  and {len(paths) - _CLASSES_AT_MOST:,} more, which --dry_run lists'
    for reason in sorted({reason for _, reason in found.left_out}):
        left_out = [path for path, each in found.left_out if each == reason]
        what = counted(len(left_out), 'file or folder', 'files or folders')
        yield f'left out: {what} ({reason}): {listed(left_out, "" if dry_run else refused_path)}'


def _remark(splits: Sequence[Sequence[ImageFile]], validation_fraction: float, say: Say) -> None:
    """Prints unusual facts about the classes; undivided images count as divided by the fraction."""
    train, *others = [collections.Counter(image.class_name for image in images) for images in splits]
    validation = others[0] if others else {name: round(validation_fraction * count) for name, count in train.items()}
    if not others:
        train = train - collections.Counter(validation)
    names = sorted({*train, *validation})
    counts = [ClassImages(name, train[name], validation.get(name, 0)) for name in names]
    for remark in (*alike(names), *remarks(counts)):
        say(f'note: {remark}')


def _write_refused(path: str, refused: Sequence[Tuple[str, str]]) -> None:
    if refused:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_whole(path, 'path\treason\n' + ''.join(f'{full(each)}\t{reason}\n' for each, reason in refused))
        except (OSError, tf.errors.OpError) as error:
            raise DataError(f'{path}: cannot be written: {failure(error)}.')


def _labels(folder: str, splits: List[List[ImageFile]]) -> Dict[str, int]:
    classes = sorted({image.class_name for image in splits[0]})
    untrained = sorted({image.class_name for images in splits for image in images} - {*classes})
    if untrained:
        raise DataError(
            f'{folder}: validation images of classes without training images: {listed(untrained)}. The classes with '
            f'training images: {listed(classes)}.{_NUMBERS * (_are_numbers(untrained) and not _are_numbers(classes))}'
        )
    if len(classes) == 1:
        raise DataError(
            f'{full(folder)}: all training images are of one class, {full(classes[0])}. There must be two or more.'
        )
    return {name: label for label, name in enumerate(classes, 1)}


def _are_numbers(names: Sequence[str]) -> bool:
    return all(name.isdigit() for name in names)


def _check_losses(folder: str, images: Sequence[ImageFile], accepted: Mapping[str, '_Accepted']) -> None:
    """Checks that each class of a split keeps at least half of its files."""
    counts = collections.Counter(image.class_name for image in images)
    lost: Dict[str, List[str]] = collections.defaultdict(list)
    for image in images:
        if image.path not in accepted:
            lost[image.class_name].append(image.path)
    problems = [
        f'{full(name)} ({len(paths):,} of {counts[name]:,}, as {full(paths[0])})'
        for name, paths in sorted(lost.items())
        if 2 * len(paths) > counts[name]
    ]
    if problems:
        what = 'classes of which most images are missing or cannot be used'
        raise DataError(f'{full(folder)}: {what}: {listed(problems)}. Convert or repair these files, or remove them.')


class _Accepted(NamedTuple):
    """A usable image file: the digest and the size of its stored image, and whether the file is stored unchanged."""

    digest: bytes
    height: int
    width: int
    is_changed: bool


def _accepted(
    folder: str, found: ImageSet, intake: Intake, skip_unreadable: bool, refused_path: str, say: Say
) -> Dict[str, _Accepted]:
    """The usable image files, by path; others are refused or, with `skip_unreadable`, left out."""
    unreadable: List[Tuple[str, str]] = []
    accepted: Dict[str, _Accepted] = {}
    notes: Dict[str, List[str]] = collections.defaultdict(list)
    paths = [image.path for images in found.splits for image in images]
    with conversion.progress() as progress:
        for path in conversion.watched(paths, progress('reading images', len(paths))):
            try:
                encoded = image_files.read(path)
                image = intake.accept(encoded)
                is_changed = image.encoded != encoded
                accepted[path] = _Accepted(digest(image.encoded), image.height, image.width, is_changed)
                for note in image.notes:
                    notes[note].append(path)
            except UnreadableError as error:
                unreadable.append((path, str(error)))
    conversion.say_notes(notes, say)
    if unreadable:
        _write_refused(refused_path, [*found.left_out, *unreadable])
        reasons = listed([f'{full(path)} {reason}' for path, reason in unreadable], refused_path)
        text = f'{counted(len(unreadable), "image")} cannot be used: {reasons}'
        if not skip_unreadable:
            raise DataError(f'{text}. Repair or remove them, or leave them out with --skip_unreadable.')
        say(f'{text}; left out')
    for number, images in enumerate(found.splits):
        _check_losses(folder, [*images, *(found.missing if not number else [])], accepted)
    return accepted


def _example(file: ImageFile, label: int, accepted: _Accepted, intake: Intake) -> tf.train.Example:
    try:
        encoded = image_files.read(file.path)
        if accepted.is_changed:
            encoded = intake.accept(encoded).encoded
    except UnreadableError as error:
        raise DataError(f'{full(file.path)} {error}; it was changed during the conversion.')
    if digest(encoded) != accepted.digest:
        raise DataError(f'{full(file.path)} was changed during the conversion. Run the same command again.')
    kind, name = image_example.format_of(encoded), os.path.basename(file.path)
    return image_example.make_example(encoded, kind, label, file.class_name, accepted.height, accepted.width, name)
