"""Converts ImageNet-2012: finds its images, assigns them to record files, has Beam write those, and checks the result.

The steps of `convert`, in order:

1. `make_plan` finds all images, labels and boxes, and stores for each record file the images that belong to it. The
   conversion's settings and everything else that a resumed conversion needs are stored in one file.
2. Beam runs `shards.convert` on each record file that is not finished. Its result is the file and a report on it.
3. `_finish` adds up the reports, and describes the data set.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from typing import Callable, Counter, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from console.json_content import from_json, record
from console.messages import counted, shown
from console.tensorflow_versions import tf
from data import records, remote
from data.convert import conversion
from data.convert.conversion import Progress
from data.convert.imagenet import shards as imagenet_shards
from data.convert.imagenet import source as imagenet_source
from data.convert.imagenet.shards import PlannedImage, ShardReport
from data.convert.imagenet.source import AnnotatedBox, Image
from data.dataset_info import DatasetInfo
from data.encoding import Box
from data.files import write_whole
from data.fingerprint import SplitFingerprint, fingerprint
from data.records import TRAIN, VALIDATION, DataError

PLAN_NAME = 'plan.json'
_SYNSET_LENGTH = len('n01440764')
# The number of names in a message.
_NAMED_AT_MOST = 10
_PARALLEL_REQUESTS = 32
# Items between two updates of the progress.
_PROGRESS_EVERY = 1000

Say = Callable[[str], None]
# Called with the names of record files, the folders of the data set and of the work, and a function to call often.
Run = Callable[[Sequence[str], str, str, Callable[[], None]], None]


class Source(NamedTuple):
    """The paths of ImageNet's parts; `data.convert.imagenet.source` describes their forms.

    Attributes:
      train: training images.
      validation: validation images.
      validation_labels: the classes of the validation images, if they are not in a folder per class.
      bounding_boxes: bounding boxes of images of either split.
      synset_names: the names of classes. None: from the development kit if that is `validation_labels`, otherwise the
        synsets themselves.
    """

    train: str
    validation: str
    validation_labels: Optional[str] = None
    bounding_boxes: Sequence[str] = ()
    synset_names: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a conversion. The images of each record file are in a separate file, for `shards.convert`.

    Attributes:
      settings: the inputs and options of the conversion, by flag.
      shards: the number of images, by the name of the record file.
      class_names: the names by label; the first is the background's.
      boxes: the numbers of bounding boxes that are written, changed and left out.
      foreign: files among the images that are not images.
      bad_annotations: invalid annotations.
    """

    settings: Dict[str, str]
    shards: Dict[str, int]
    class_names: List[str]
    boxes: Dict[str, int]
    foreign: List[str]
    bad_annotations: List[str]


def convert(
    source: Source, data_dir: str, shards: Dict[str, int], expected: Dict[str, int], run: Run, say: Say
) -> None:
    """Converts ImageNet to record files, or resumes a conversion.

    Args:
      source: the paths of ImageNet's parts.
      data_dir: a local or remote folder: new, empty, or with an unfinished conversion.
      shards: the number of record files of each split, reduced to the number of images if that is lower.
      expected: the number of images of each split.
      run: runs `shards.convert` on record files.
      say: called with messages about the progress.

    Raises:
      DataError: a part is missing, damaged or not as expected. Finished files are kept.
      RemoteError: access to a remote file is denied, or the store cannot be reached. Finished files are kept.
    """
    settings = _settings(source, shards)
    work_dir = conversion.start(data_dir, PLAN_NAME, settings, say)
    if work_dir is None:
        return
    with conversion.alone_in(work_dir), conversion.progress() as progress:
        plan = read_plan(work_dir) or make_plan(
            source, settings, shards, expected, work_dir, lambda what: progress(f'finding {what}', None)
        )
        for files, what in ((plan.foreign, 'files are not images'), (plan.bad_annotations, 'annotations are invalid')):
            if files:
                say(f'{len(files):,} {what}, and are left out: {_listed(files)}')
        reports = _reports(plan, data_dir, work_dir)
        pending = [shard for shard in plan.shards if shard not in reports or reports[shard].unreadable]
        if reports:
            say(f'{len(plan.shards) - len(pending):,} of {len(plan.shards):,} record files are already finished')
        if pending:
            _forget(work_dir, pending)
            move = progress('converting images', sum(plan.shards[shard] for shard in pending))

            def watch() -> None:
                """Shows the progress, on whatever machines Beam runs."""
                with contextlib.suppress(tf.errors.OpError, remote.RemoteError):
                    names = set(remote.names_in(work_dir) or ())
                    move(sum(plan.shards[shard] for shard in pending if shard + imagenet_shards.REPORT_ENDING in names))

            run(pending, data_dir, work_dir, watch)
            raise_failure(work_dir)
            reports = _reports(plan, data_dir, work_dir)
        _finish(plan, reports, data_dir, expected, say)
        tf.io.gfile.rmtree(work_dir)


def _settings(source: Source, shards: Dict[str, int]) -> Dict[str, str]:
    """Identifies all inputs and options, by flag. A conversion resumes only if these values are the same."""
    settings = {'--train': _place(source.train), '--validation': _place(source.validation)}
    for flag, path in (('validation_labels', source.validation_labels), ('synset_names', source.synset_names)):
        settings[f'--{flag}'] = _content(path) if path else 'none'
    settings['--bounding_boxes'] = ' and '.join(map(_content, source.bounding_boxes)) or 'none'
    settings.update({f'--{split}_shards': str(count) for split, count in shards.items()})
    return settings


def _place(path: str) -> str:
    """The identity of images: their path, and the size of their archive."""
    if remote.is_remote(path):
        return path
    path = os.path.abspath(path)
    return f'{path} ({os.path.getsize(path):,} bytes)' if os.path.isfile(path) else path


def _content(path: str) -> str:
    """The identity of a file: its path and its content."""
    if tf.io.gfile.isdir(path):
        return _place(path)
    return f'{_place(path)} SHA-256 {hashlib.sha256(imagenet_source.read_file(path)).hexdigest()[:16]}'


def read_plan(work_dir: str) -> Optional[Plan]:
    """The plan that is stored in a work folder; None if there is none."""
    path = os.path.join(work_dir, PLAN_NAME)
    content = remote.read(path)
    try:
        return from_json(content, lambda values: record(Plan, values)) if content else None
    except ValueError as error:
        raise DataError(f'{path}: is damaged: {shown(error)}. Name a new folder.')


def make_plan(
    source: Source,
    settings: Dict[str, str],
    shards: Dict[str, int],
    expected: Dict[str, int],
    work_dir: str,
    progress: Callable[[str], Progress],
) -> Plan:
    """Finds all images, labels and boxes, assigns them to record files, and stores the plan in the work folder.

    `source`, `shards` and `expected` are those of `convert`. `progress` is called with a kind of items, and returns a
    function to call with the number found so far.
    """
    foreign: List[str] = []
    bad_annotations: List[str] = []
    images = {
        TRAIN: _find_images(f'--{TRAIN}', source.train, expected[TRAIN], foreign, progress),
        VALIDATION: _find_images(f'--{VALIDATION}', source.validation, expected[VALIDATION], foreign, progress),
    }
    unlabelled = next((image for image in images[TRAIN] if not image.synset), None)
    if unlabelled:
        raise DataError(
            f'--train={source.train}: {unlabelled.filename} is in no folder or archive of a class, such as n01440764.'
        )
    images[VALIDATION] = _labelled(images[VALIDATION], source)
    synsets = sorted({image.synset for image in images[TRAIN]})
    labels = {synset: label for label, synset in enumerate(synsets, 1)}
    unseen = sorted({image.synset for image in images[VALIDATION]} - set(labels))
    if unseen:
        raise DataError(f'{len(unseen)} classes of validation images have no training images: {", ".join(unseen[:5])}.')
    names = _class_names(synsets, source)

    boxes: Dict[str, List[AnnotatedBox]] = collections.defaultdict(list)
    box_progress = progress('bounding boxes')
    for path in source.bounding_boxes:
        for stem, box in _counted(imagenet_source.read_boxes(path, bad_annotations), box_progress):
            boxes[sys.intern(stem)].append(box)

    box_counts: Counter[str] = collections.Counter()
    sizes: Dict[str, int] = {}
    for split, of_split in images.items():
        # Deterministic, and mixes the classes.
        of_split.sort(key=_digest)
        files = min(shards[split], len(of_split))
        for shard in range(files):
            shard_name = os.path.basename(records.shard_path('', split, shard, files))
            part = of_split[len(of_split) * shard // files : len(of_split) * (shard + 1) // files]
            planned = []
            for image in part:
                drawn = boxes.pop(os.path.splitext(image.filename)[0], ())
                cleaned = _clean(drawn, image.synset, box_counts)
                planned.append(PlannedImage(image, labels[image.synset], names[image.synset], cleaned))
            imagenet_shards.write_plan(work_dir, shard_name, planned)
            sizes[shard_name] = len(planned)
    # Boxes of other images. The key is part of `conversion.json`.
    box_counts['of no image here'] = sum(map(len, boxes.values()))
    class_names = ['background', *(names[synset] for synset in synsets)]
    plan = Plan(settings, sizes, class_names, dict(box_counts), foreign, bad_annotations)
    write_whole(os.path.join(work_dir, PLAN_NAME), json.dumps(dataclasses.asdict(plan)))
    return plan


def _find_images(
    flag: str, path: str, expected: int, foreign: List[str], progress: Callable[[str], Progress]
) -> List[Image]:
    """The images of a split; other files are added to `foreign`."""
    where = f'{flag}={path}'
    images = [*_counted(imagenet_source.find_images(path, foreign), progress(f'{flag[2:]} images'))]
    # A bounding box names its image by the file name alone.
    by_name = sorted(images, key=lambda image: (image.filename, image.synset))
    for image, following in zip(by_name, by_name[1:]):
        if (image.filename, image.synset) == (following.filename, following.synset):
            paths = ' and '.join(sorted({image.path, following.path}))
            among = f' among the images of {image.synset}' if image.synset else ''
            raise DataError(f'{where}: {image.filename} exists more than once{among}: in {paths}. Keep only one.')
    if len(images) != expected:
        raise DataError(
            f'{where}: has {len(images):,} images; {expected:,} are expected. If this number is right, pass '
            f'{flag}_images={len(images)}.'
        )
    return images


def _labelled(images: List[Image], source: Source) -> List[Image]:
    """The validation images with their classes."""
    where, labels = f'--validation={source.validation}', source.validation_labels
    with_class = sum(bool(image.synset) for image in images)
    if 0 < with_class < len(images):
        raise DataError(f'{where}: some images are in a folder per class, and some are not.')
    if with_class and labels:
        raise DataError(
            f'--validation_labels={labels}: the images of {where} are already in a folder per class. Omit '
            '--validation_labels.'
        )
    if not with_class and not labels:
        raise DataError('--validation_labels: is required: the validation images are not in a folder per class.')
    return imagenet_source.label_validation(images, labels) if labels else images


def _class_names(synsets: Sequence[str], source: Source) -> Dict[str, str]:
    """The names of classes by synset."""
    path = source.synset_names
    if path is None:
        path = source.validation_labels
        if not path or not imagenet_source.is_devkit(path):
            return dict(zip(synsets, synsets))
    names = imagenet_source.read_class_names(path)
    missing = [synset for synset in synsets if synset not in names]
    if missing:
        raise DataError(f'{path}: has no name for {len(missing)} classes: {", ".join(missing[:5])}.')
    return names


def _clean(boxes: Iterable[AnnotatedBox], synset: str, counts: Counter[str]) -> List[Box]:
    """The boxes of an image's class, with ordered corners, clipped to the image; empty boxes are left out.

    Args:
      boxes: the annotated boxes.
      synset: the image's class.
      counts: incremented for the boxes that are 'written', 'ordered' (the corners were swapped), 'clipped', 'empty' or
        'of another class'; the last two kinds are left out.
    """
    cleaned = []
    for corners, name in boxes:
        # Some annotations name the class in words. As in the published conversion, only synsets are compared.
        if len(name) == _SYNSET_LENGTH and name[1:].isdigit() and name != synset:
            counts['of another class'] += 1
            continue
        drawn = np.float32(corners)
        ordered = np.float32([*np.minimum(drawn[:2], drawn[2:]), *np.maximum(drawn[:2], drawn[2:])])
        clipped = np.clip(ordered, 0.0, 1.0)
        if (clipped[:2] == clipped[2:]).any():
            counts['empty'] += 1
            continue
        counts['written'] += 1
        counts['ordered'] += int((ordered != drawn).any())
        counts['clipped'] += int((clipped != ordered).any())
        cleaned.append(Box(*clipped.tolist()))
    return cleaned


def _digest(image: Image) -> bytes:
    return hashlib.sha256(f'{image.synset}/{image.filename}'.encode(errors='surrogateescape')).digest()


def _counted(items: Iterable, progress: Progress) -> Iterator:
    """Yields the items, and calls `progress` with the number so far."""
    count = 0
    for count, item in enumerate(items, 1):
        if count % _PROGRESS_EVERY == 0:
            progress(count)
        yield item
    progress(count)


def _reports(plan: Plan, data_dir: str, work_dir: str) -> Dict[str, ShardReport]:
    """The reports on the finished record files, by name, in the plan's order."""
    present = set(remote.names_in(data_dir) or ())
    written = [shard for shard in plan.shards if shard in present]

    def report(shard: str) -> Optional[ShardReport]:
        found = imagenet_shards.read_report(work_dir, shard)
        return found if found and found.file_bytes == remote.size(os.path.join(data_dir, shard)) else None

    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return {shard: found for shard, found in zip(written, pool.map(report, written)) if found}


def _forget(work_dir: str, shards: Iterable[str]) -> None:
    """Removes the reports on record files, and the message of a failed conversion."""
    names = {imagenet_shards.FAILURE_NAME, *(shard + imagenet_shards.REPORT_ENDING for shard in shards)}
    for name in names & set(remote.names_in(work_dir) or ()):
        tf.io.gfile.remove(os.path.join(work_dir, name))


def raise_failure(work_dir: str) -> None:
    """Raises the error that `shards.convert` stored, if there is one.

    Raises:
      DataError: an image no longer existed, or a file could not be written.
      UnreachableError: the store of a remote file could not be reached.
    """
    content = remote.read(os.path.join(work_dir, imagenet_shards.FAILURE_NAME))
    if content:
        try:
            is_transient, message = from_json(content, lambda values: (bool(values[0]), str(values[1])))
        except ValueError:
            is_transient, message = False, shown(content)
        raise (remote.UnreachableError if is_transient else DataError)(message)


def _finish(plan: Plan, reports: Dict[str, ShardReport], data_dir: str, expected: Dict[str, int], say: Say) -> None:
    """Checks the number of images that were written, and writes the description of the data set."""
    missing = sorted(set(plan.shards) - set(reports))
    if missing:
        raise DataError(
            f'{data_dir}: {len(missing)} record files were not written: {_listed(missing)}. Run the same command again.'
        )
    of_split = {split: [shard for shard in plan.shards if shard.startswith(f'{split}-')] for split in expected}
    totals = {
        split: sum((reports[shard].fingerprint for shard in shards), SplitFingerprint())
        for split, shards in of_split.items()
    }
    converted = _joined(report.converted for report in reports.values())
    notes = _joined(report.notes for report in reports.values())
    unreadable = [name for report in reports.values() for name in report.unreadable]
    for kind, names in sorted(converted.items()):
        say(f'{counted(len(names), f"{kind} image")} converted to RGB JPEG files: {_listed(names)}')
    for note, names in sorted(notes.items()):
        say(f'{counted(len(names), "image")} {note}: {_listed(names)}')
    say('bounding boxes: ' + (', '.join(f'{count:,} {what}' for what, count in plan.boxes.items() if count) or 'none'))
    for split, total in totals.items():
        if total.images != expected[split]:
            undecodable = f': {len(unreadable):,} cannot be decoded, {_listed(unreadable)}' if unreadable else ''
            raise DataError(
                f'{data_dir}: {total.images:,} {split} images were written; {expected[split]:,} are expected'
                f'{undecodable}. Repair them and run the same command again, or accept this number with '
                f'--{split}_images={total.images}. Finished files are kept.'
            )
    if unreadable:
        say(f'{len(unreadable):,} images cannot be decoded, and are left out: {_listed(unreadable)}')
    info = DatasetInfo(
        name='imagenet',
        source='ImageNet-2012 (ILSVRC2012), classification and localization',
        train_images=totals[TRAIN].images,
        validation_images=totals[VALIDATION].images,
        num_classes=len(plan.class_names),
        class_names=plan.class_names,
        fingerprint=fingerprint(totals[TRAIN], totals[VALIDATION]),
        validation_records_per_file=[reports[shard].fingerprint.images for shard in of_split[VALIDATION]],
    )
    info.write(data_dir)
    report = {
        **{name: getattr(plan, name) for name in ('settings', 'boxes', 'foreign', 'bad_annotations')},
        'images': {split: total.images for split, total in totals.items()},
        **{'converted': converted, 'unreadable': unreadable, 'notes': notes},
    }
    # Written last: it marks the conversion as finished.
    write_whole(os.path.join(data_dir, conversion.REPORT_NAME), json.dumps(report))
    say(
        f'{info.train_images:,} training and {info.validation_images:,} validation images of {info.num_classes - 1:,} '
        f'classes in {data_dir}'
    )


def _joined(parts: Iterable[Dict[str, List[str]]]) -> Dict[str, List[str]]:
    """The lists of several dictionaries, joined by key."""
    joined: Dict[str, List[str]] = collections.defaultdict(list)
    for part in parts:
        for key, names in part.items():
            joined[key] += names
    return joined


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ', '.join(names[:_NAMED_AT_MOST]) + (
        f' and {more:,} more (all in {conversion.REPORT_NAME})' if more > 0 else ''
    )
