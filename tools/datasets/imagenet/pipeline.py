"""Converts ImageNet-2012: finds its images, assigns them to record files, has Beam write those, and checks the result.

The steps of `convert`, in order:

1. `_make_plan` finds all images, labels and boxes, and stores for each record file the images that belong to it. Other
data that a resumed conversion needs are stored in `PLAN_NAME`. 2. Beam runs `write_shard` on each record file that is
not finished. Its results are the file and a report on it. 3. `_finish` adds up the reports, and describes the data set.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
from typing import Any, Callable, Counter, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from compat import native_messages, tf
from compat.errors import CommandError
from compat.messages import full, shown
from console import outputs
from console.json_content import from_json, record
from data import records, remote
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.records import TRAIN, VALIDATION, DataError
from preprocessing.decoding import decode_image
from tools import image_header
from tools.datasets import conversion, fingerprints, image_example, writing
from tools.datasets.archives import read_file
from tools.datasets.conversion import Progress, Say, StartProgress, watched
from tools.datasets.fingerprints import SplitFingerprint
from tools.datasets.image_example import Box
from tools.datasets.imagenet import source as imagenet_source
from tools.datasets.imagenet.source import AnnotatedBox, Image
from tools.datasets.intake import DAMAGED, ROTATED, damage_in
from tools.image_files import listed

# Files in the work folder: the plan, and the error that ended a conversion; for each record file, its images and, when
# it is finished, its report.
PLAN_NAME, FAILURE_NAME = 'plan.json', 'failure'
_IMAGES_ENDING, REPORT_ENDING = '.plan', '.report'
_SYNSET_LENGTH = len('n01440764')
_PARALLEL_REQUESTS = 32
# The quality of re-encoded images, as in the published conversion.
_QUALITY = 100

# Called with the names of record files, the folders of the data set and of the work, and a function to call often.
Run = Callable[[Sequence[str], str, str, Callable[[], None]], None]


class Source(NamedTuple):
    """The paths of ImageNet's parts, by flag; `tools.datasets.imagenet.source` describes their forms."""

    train: str
    validation: str
    validation_labels: Optional[str] = None
    bounding_boxes: Sequence[str] = ()


class Plan(NamedTuple):
    """The plan of a conversion."""

    settings: Dict[str, str]  # The inputs and options of the conversion, by flag.
    shards: Dict[str, int]  # The number of images, by the name of the record file.
    class_names: List[str]  # The names by label; the first is the background's.
    boxes: Dict[str, int]  # The numbers of bounding boxes that are written and left out.
    foreign: List[str]  # Files among the images that are not images.
    bad_annotations: List[str]  # Invalid annotations.


class PlannedImage(NamedTuple):
    """An image and the other fields of its record: its class, from 1 on, the class's name, and its bounding boxes."""

    image: Image
    label: int
    text: str
    boxes: List[Box]


class ShardReport(NamedTuple):
    """The result of writing a record file: its size, and the fingerprint of its images and labels.

    It names the images that were `converted`, by their original kind: 'CMYK' (or YCCK), 'PNG' or 'GIF'; images that
    cannot be decoded, and were left out; and, by `DAMAGED` or `ROTATED`, images that are kept unchanged.
    """

    file_bytes: int
    fingerprint: SplitFingerprint
    converted: Dict[str, List[str]]
    unreadable: List[str]
    notes: Dict[str, List[str]]


def convert(
    source: Source, data_dir: str, shards: Dict[str, int], expected: Dict[str, int], run: Run, say: Say
) -> None:
    """Converts ImageNet to record files, or resumes a conversion.

    The numbers of record files and the expected numbers of images are by split. `run` runs `write_shard` on record
    files; `say` is called with messages.
    """
    settings = _settings(source, shards)

    def work(work_dir: str, progress: StartProgress) -> Tuple[DatasetInfo, Dict[str, Any]]:
        plan = read_plan(work_dir) or _make_plan(source, settings, shards, expected, work_dir, progress)
        for files, what in ((plan.foreign, 'files are not images'), (plan.bad_annotations, 'annotations are invalid')):
            if files:
                say(f'{len(files):,} {what}, and are left out: {listed(files, conversion.REPORT_NAME)}')
        reports = _reports(plan, data_dir, work_dir)
        pending = [shard for shard in plan.shards if shard not in reports or reports[shard].unreadable]
        if reports:
            say(f'{len(plan.shards) - len(pending):,} of {len(plan.shards):,} record files are already finished')
        if pending:
            # An error of an earlier conversion, and the reports on files that are written again.
            outdated = {FAILURE_NAME, *(shard + REPORT_ENDING for shard in pending)}
            for name in outdated & set(remote.names_in(work_dir) or ()):
                tf.io.gfile.remove(os.path.join(work_dir, name))
            move = progress('converting images', sum(plan.shards[shard] for shard in pending))

            def watch() -> None:
                """Shows the progress, on whatever machines Beam runs."""
                with contextlib.suppress(tf.errors.OpError, remote.RemoteError):
                    names = set(remote.names_in(work_dir) or ())
                    move(sum(plan.shards[shard] for shard in pending if shard + REPORT_ENDING in names))

            run(pending, data_dir, work_dir, watch)
            raise_failure(work_dir)
            reports = _reports(plan, data_dir, work_dir)
        return _finish(plan, reports, data_dir, expected, say)

    conversion.run(data_dir, PLAN_NAME, settings, work, say)


def _settings(source: Source, shards: Dict[str, int]) -> Dict[str, str]:
    """Identifies all inputs and options, by flag. A conversion resumes only if these values are the same."""
    return {
        '--train': _place(source.train),
        '--validation': _place(source.validation),
        '--validation_labels': _content(source.validation_labels),
        '--bounding_boxes': ' and '.join(map(_content, source.bounding_boxes)) or 'none',
        **{f'--{split}_shards': str(count) for split, count in shards.items()},
    }


def _place(path: str) -> str:
    """The identity of images: their path, and the size of their archive."""
    if remote.is_remote(path):
        return path
    path = os.path.abspath(path)
    return f'{path} ({os.path.getsize(path):,} bytes)' if os.path.isfile(path) else path


def _content(path: Optional[str]) -> str:
    """The identity of a file: its path and its content."""
    if not path:
        return 'none'
    if tf.io.gfile.isdir(path):
        return _place(path)
    return f'{_place(path)} SHA-256 {hashlib.sha256(read_file(path)).hexdigest()[:16]}'


def _stored(work_dir: str, name: str, make: Callable[[Any], Any]) -> Any:
    """Reads a JSON file of the work folder, whose content `make` converts; None if there is no such file."""
    path = os.path.join(work_dir, name)
    content = remote.read(path)
    try:
        return None if content is None else from_json(content, make)
    except ValueError as error:
        raise DataError(f'{path}: is damaged: {shown(error)}. Name a new folder.')


def read_plan(work_dir: str) -> Optional[Plan]:
    """The plan that is stored in a work folder; None if there is none."""
    return _stored(work_dir, PLAN_NAME, lambda values: record(Plan, values))


def _make_plan(
    source: Source,
    settings: Dict[str, str],
    shards: Dict[str, int],
    expected: Dict[str, int],
    work_dir: str,
    progress: StartProgress,
) -> Plan:
    """Finds all images, labels and boxes, assigns them to record files, and stores the plan in the work folder."""
    foreign: List[str] = []
    bad_annotations: List[str] = []
    images = {
        split: _find_images(split, path, expected[split], foreign, progress(f'finding {split} images', None))
        for split, path in ((TRAIN, source.train), (VALIDATION, source.validation))
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
        raise DataError(
            f'{len(unseen):,} classes of validation images have no training images: {", ".join(unseen[:5])}.'
        )
    kit = source.validation_labels
    words = imagenet_source.read_class_names(kit) if kit else {}
    # By synset; without the development kit, the synset itself.
    names = {synset: words.get(synset, synset) for synset in synsets}

    boxes: Dict[str, List[AnnotatedBox]] = collections.defaultdict(list)
    move = progress('finding bounding boxes', None)
    for path in source.bounding_boxes:
        for stem, box in watched(imagenet_source.read_boxes(path, bad_annotations), move):
            boxes[sys.intern(stem)].append(box)

    box_counts: Counter[str] = collections.Counter()
    sizes: Dict[str, int] = {}
    for split, of_split in images.items():
        # Deterministic, and mixes the classes.
        of_split.sort(
            key=lambda image: writing.digest(f'{image.synset}/{image.filename}'.encode(errors='surrogateescape'))
        )
        files = min(shards[split], len(of_split))
        for shard, share in enumerate(records.shares(len(of_split), files)):
            name = os.path.basename(records.shard_path('', split, shard, files))
            planned = []
            for image in of_split[share.start : share.stop]:
                annotated = boxes.pop(os.path.splitext(image.filename)[0], ())
                cleaned = _clean(annotated, image.synset, box_counts)
                planned.append(PlannedImage(image, labels[image.synset], names[image.synset], cleaned))
            write_whole(os.path.join(work_dir, name + _IMAGES_ENDING), json.dumps(planned))
            sizes[name] = len(planned)
    # Boxes of images that do not exist count as left out, too.
    box_counts['left out'] += sum(map(len, boxes.values()))
    class_names = ['background', *(names[synset] for synset in synsets)]
    plan = Plan(settings, sizes, class_names, dict(box_counts), foreign, bad_annotations)
    write_whole(os.path.join(work_dir, PLAN_NAME), json.dumps(plan._asdict()))
    return plan


def _find_images(split: str, path: str, expected: int, foreign: List[str], move: Progress) -> List[Image]:
    """The images of a split; other files are added to `foreign`."""
    where = f'--{split}={path}'
    images = [*watched(imagenet_source.find_images(path, foreign), move)]
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
            f'--{split}_images={len(images)}.'
        )
    return images


def _labelled(images: List[Image], source: Source) -> List[Image]:
    with_class = sum(bool(image.synset) for image in images)
    if 0 < with_class < len(images):
        raise DataError(f'--validation={source.validation}: some images are in a folder per class, and some are not.')
    if not with_class and not source.validation_labels:
        raise DataError('--validation_labels: is required: the validation images are not in a folder per class.')
    return images if with_class else imagenet_source.label_validation(images, str(source.validation_labels))


def _clean(boxes: Iterable[AnnotatedBox], synset: str, counts: Counter[str]) -> List[Box]:
    """The boxes of an image's class, with ordered corners, clipped to the image; empty boxes are left out.

    `counts` is incremented for the boxes that are 'written', and for those 'left out'.
    """
    cleaned = []
    for corners, name in boxes:
        # Some annotations name the class in words. As in the published conversion, only synsets are compared.
        is_of_class = name == synset or len(name) != _SYNSET_LENGTH or not name[1:].isdigit()
        low, high = np.clip(np.sort(np.float32(corners).reshape([2, 2]), axis=0), 0.0, 1.0).tolist()
        is_written = is_of_class and low[0] < high[0] and low[1] < high[1]
        counts['written' if is_written else 'left out'] += 1
        if is_written:
            cleaned.append(Box(*low, *high))
    return cleaned


def write_shard(shard: str, data_dir: str, work_dir: str) -> None:
    """Writes a record file, by name, and its report. The file gets its final name only when both are complete.

    Beam would show a traceback for each failure. Therefore, the first one is stored in `FAILURE_NAME`, as a JSON list
    of whether it is transient and a message, and ends the conversion.
    """
    failure = os.path.join(work_dir, FAILURE_NAME)
    if tf.io.gfile.exists(failure):
        return
    path = os.path.join(data_dir, shard)
    try:
        # A process presumed dead, or a cluster's backup of a slow one, may convert the same shard.
        with remote.explained(path, remote.WRITE), outputs.unfinished_file(path, work_dir) as unfinished:
            report = ShardReport(0, SplitFingerprint(), {}, [], {})
            images, total, labels = writing.write_file(unfinished, _examples(read_shard_plan(work_dir, shard), report))
            content = json.dumps([remote.size(unfinished), [images, f'{total:064x}', [*labels.items()]], *report[2:]])
            write_whole(os.path.join(work_dir, shard + REPORT_ENDING), content)
    except (CommandError, tf.errors.OpError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        is_transient = isinstance(error, remote.UnreachableError)
        write_whole(failure, json.dumps([is_transient, f'{shard} was not written: {message}']))


def read_shard_plan(work_dir: str, shard: str) -> List[PlannedImage]:
    """The images of a record file."""

    def image_of(image: Any, label: int, text: str, boxes: Any) -> PlannedImage:
        return PlannedImage(Image(*image), label, text, [Box(*box) for box in boxes])

    images = _stored(work_dir, shard + _IMAGES_ENDING, lambda rows: [image_of(*row) for row in rows])
    if images is None:
        raise DataError(f'{work_dir}: the plan of {shard} is missing. Name a new folder.')
    return images


def _examples(images: List[PlannedImage], report: ShardReport) -> Iterator[tf.train.Example]:
    """Yields the Examples of the decodable images, and adds unusual ones to the report."""
    for image, label, text, boxes in images:
        content = imagenet_source.read(image)
        try:
            decode = functools.partial(_as_rgb_jpeg(), content)
            (encoded, height, width, kind), messages = native_messages.during(decode)
        except tf.errors.InvalidArgumentError:
            report.unreadable.append(image.path if image.size is None else f'{image.filename} in {image.path}')
            continue
        if kind != 'JPEG':
            report.converted.setdefault(kind, []).append(image.filename)
        if damage_in(messages):
            report.notes.setdefault(DAMAGED, []).append(image.filename)
        if image_header.orientation(content) != image_header.UPRIGHT:
            report.notes.setdefault(ROTATED, []).append(image.filename)
        yield image_example.make_example(
            encoded, 'JPEG', label, text, height, width, image.filename, image.synset, boxes
        )


@functools.lru_cache(maxsize=None)
def _as_rgb_jpeg() -> Callable[[bytes], Tuple[bytes, int, int, str]]:
    """A function from an image file to a JPEG file, its height and width, and its original kind.

    A grey or RGB JPEG file is returned unchanged. `tf.errors.InvalidArgumentError` is raised for an image that cannot
    be decoded. There is one session for all shards of the process.
    """
    with tf.Graph().as_default() as graph:
        content = tf.placeholder(tf.string, [])
        pixels = decode_image(content)
        shape = tf.shape(pixels)
        components = tf.image.extract_jpeg_shape(content)[2]
        jpeg = tf.image.encode_jpeg(pixels, format='rgb', quality=_QUALITY)
    # One thread: there is a process per core.
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    session = tf.Session(graph=graph, config=config)

    def convert_image(encoded: bytes) -> Tuple[bytes, int, int, str]:
        feed = {content: encoded}
        kind = image_example.format_of(encoded)
        if kind == 'JPEG' and session.run(components, feed) == 4:
            kind = 'CMYK'
        if kind == 'JPEG':
            height, width, _ = session.run(shape, feed)
        else:
            (height, width, _), encoded = session.run([shape, jpeg], feed)
        return encoded, int(height), int(width), kind

    return convert_image


def _reports(plan: Plan, data_dir: str, work_dir: str) -> Dict[str, ShardReport]:
    """The reports on the finished record files, by name, in the plan's order."""
    present = set(remote.names_in(data_dir) or ())

    def finished(shard: str) -> Optional[ShardReport]:
        report = read_report(work_dir, shard) if shard in present else None
        return report if report and report.file_bytes == remote.size(os.path.join(data_dir, shard)) else None

    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return {shard: report for shard, report in zip(plan.shards, pool.map(finished, plan.shards)) if report}


def read_report(work_dir: str, shard: str) -> Optional[ShardReport]:
    """The report on a record file; None if the file is not finished, or the report is damaged."""

    def report(values: Any) -> ShardReport:
        file_bytes, (images, total, *labels), *names = values
        # Reports of earlier versions have no numbers of images by label.
        by_label = dict(labels[0]) if labels else {}
        return ShardReport(file_bytes, SplitFingerprint(images, int(total, 16), by_label), *names)

    with contextlib.suppress(DataError):
        return _stored(work_dir, shard + REPORT_ENDING, report)
    return None


def raise_failure(work_dir: str) -> None:
    """Raises the error that `write_shard` stored, if there is one: DataError or UnreachableError."""
    failure = _stored(work_dir, FAILURE_NAME, lambda values: (bool(values[0]), str(values[1])))
    if failure:
        is_transient, message = failure
        raise (remote.UnreachableError if is_transient else DataError)(message)


def _finish(
    plan: Plan, reports: Dict[str, ShardReport], data_dir: str, expected: Dict[str, int], say: Say
) -> Tuple[DatasetInfo, Dict[str, Any]]:
    """Checks the number of images that were written; returns the description of the data set, and the report."""
    missing = sorted(set(plan.shards) - set(reports))
    if missing:
        raise DataError(
            f'{data_dir}: {len(missing):,} record files were not written: {listed(missing)}. Run the same command '
            'again.'
        )
    of_split = {split: [shard for shard in plan.shards if shard.startswith(f'{split}-')] for split in expected}
    totals = {
        split: sum((reports[shard].fingerprint for shard in shards), SplitFingerprint())
        for split, shards in of_split.items()
    }
    unreadable = [name for report in reports.values() for name in report.unreadable]
    undecodable = f'{len(unreadable):,} images cannot be decoded, and are left out: '
    for split, total in totals.items():
        if total.images != expected[split]:
            # All are named: the report that lists them is not written.
            raise DataError(
                f'{data_dir}: {total.images:,} {split} images were written; {expected[split]:,} are expected. '
                + (f'{undecodable}{", ".join(map(full, unreadable))}. ' if unreadable else '')
                + 'Repair them and run the same command again, which keeps finished files, or accept this number with '
                f'--{split}_images={total.images}.'
            )
    converted: Dict[str, List[str]] = collections.defaultdict(list)
    notes: Dict[str, List[str]] = collections.defaultdict(list)
    for report in reports.values():
        for joined, part in ((converted, report.converted), (notes, report.notes)):
            for key, images in part.items():
                joined[key] += images
    changed = {f'converted from {kind} to RGB JPEG files': images for kind, images in converted.items()}
    conversion.say_notes({**changed, **notes}, say, conversion.REPORT_NAME)
    say('bounding boxes: ' + (', '.join(f'{count:,} {what}' for what, count in plan.boxes.items() if count) or 'none'))
    if unreadable:
        say(undecodable + listed(unreadable, conversion.REPORT_NAME))
    origin = 'ImageNet-2012 (ILSVRC2012), classification and localization'
    info = fingerprints.described('imagenet', origin, plan.class_names[1:], totals[TRAIN], totals[VALIDATION])
    counts = [reports[shard].fingerprint.images for shard in of_split[VALIDATION]]
    return dataclasses.replace(info, validation_records_per_file=counts), {
        **{name: getattr(plan, name) for name in ('boxes', 'foreign', 'bad_annotations')},
        'images': {split: total.images for split, total in totals.items()},
        'converted': converted,
        'unreadable': unreadable,
        'notes': notes,
    }
