"""Converts data sets between record files and tar shards, and describes the samples of a shard."""

import contextlib
import dataclasses
import functools
import io
import json
import os
import tarfile
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from google.protobuf import json_format

from console import native_messages
from console.messages import counted, printable, shown
from console.tensorflow_versions import tf
from data import checks, dataset_info, encoding, exif, ppm, record_checker, records, remote, tfrecord_files
from data.convert import conversion, writing
from data.convert.conversion import listed
from data.convert.intake import DAMAGED, ROTATED, damage_in
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.tar import files as tar_files
from data.tar.layout import LABEL_EXTENSION, Problem
from data.tar.shard import Sample, SampleChecker, Shard
from preprocessing.decoding import decode_image

# The extension of the file with a record's fields other than image and label, for the conversion back.
_FIELDS_EXTENSION = 'json'
_EXTENSIONS_BY_MAGIC = {b'\xff\xd8': 'jpg', b'\x89PNG': 'png'}
_ENCODED, _LABEL = 'image/encoded', 'image/class/label'
# The limit for a source without `dataset.json`: the new `dataset.json` has a name for each class.
_CLASSES_AT_MOST = 1_000_000


class _Images:
    """Checks images, counts those that are left out, and makes Examples of images.

    Args:
      num_classes: the number of classes; labels must be lower; None if the source has no description.
      max_bad_records: the number of images that may be left out.
      say: called with a message about each image that is left out.
    """

    def __init__(self, num_classes: Optional[int], max_bad_records: int, say: Callable[[str], None]):
        with tf.Graph().as_default() as graph:
            self._encoded = tf.placeholder(tf.string, [])
            self._png = ppm.as_png(self._encoded)
            self._shape = tf.shape(decode_image(self._png))
        self._session = tf.Session(graph=graph)
        self._has_description = num_classes is not None
        labels_below = _CLASSES_AT_MOST if num_classes is None else num_classes
        self.of_records = record_checker.RecordChecker(labels_below, decode_image)
        self.of_tar = SampleChecker(labels_below, lambda image: decode_image(ppm.as_png(image)))
        self._remaining, self._say = max_bad_records, say
        self._noted: Dict[str, List[str]] = {}

    def close(self) -> None:
        """Closes the TensorFlow sessions."""
        for each in (self._session, self.of_records, self.of_tar):
            each.close()

    def label_problem(self, label: int) -> Optional[str]:
        """The reason why a label cannot be used without a description; None if it can, or there is a description."""
        if self._has_description or 0 <= label < _CLASSES_AT_MOST:
            return None
        return (
            f'label {label} is not in 0 to {_CLASSES_AT_MOST - 1:,}, the labels allowed in a source without '
            f'{dataset_info.FILE_NAME}.'
        )

    def is_usable(self, path: str, position: int, problem: Optional[str]) -> bool:
        """Whether an image has no problem. Otherwise, reports and counts the image.

        Raises:
          DataError: there is a problem, and no more images may be left out.
        """
        if not problem:
            return True
        bad = record_checker.BadRecord(path, position, problem)
        if not self._remaining:
            raise records.DataError(f'{bad} Nothing was written. --max_bad_records=N leaves out up to N such images.')
        self._remaining -= 1
        self._say(f'left out {bad}')
        return False

    def note(self, path: str, position: int, encoded: bytes, messages: str) -> None:
        """Notes the damage and the EXIF orientation of an image that is kept; `messages`: those of its decoding."""
        place = f'{path}, record {position}'
        damage = damage_in(messages)
        if damage:
            self._noted.setdefault(DAMAGED, []).append(f'{place} ({damage})')
        if exif.orientation(encoded) != exif.UPRIGHT:
            self._noted.setdefault(ROTATED, []).append(place)

    def report_notes(self) -> None:
        """Reports what was noted about images that are kept."""
        for what, places in sorted(self._noted.items()):
            self._say(f'{counted(len(places), "image")} {what}: {listed(places)}')

    def example(self, encoded: bytes, label: int, filename: str) -> tf.train.Example:
        """The Example of an image without other fields."""
        encoded, (height, width, _) = self._session.run([self._png, self._shape], {self._encoded: encoded})
        image_format = encoding.format_of(encoded)
        return encoding.make_example(encoded, image_format, label, '', int(height), int(width), filename)


def _extension_of(encoded: bytes) -> Optional[str]:
    return next((name for magic, name in _EXTENSIONS_BY_MAGIC.items() if encoded.startswith(magic)), None)


def _label_and_image(example: tf.train.Example) -> Tuple[int, bytes]:
    feature = example.features.feature
    return feature[_LABEL].int64_list.value[0], feature[_ENCODED].bytes_list.value[0]


def _examples_of_records(path: str, images: _Images) -> Iterator[tf.train.Example]:
    try:
        for position, serialized in enumerate(tfrecord_files.serialized_in(path)):
            example = record_checker.parse_example(serialized)
            labels = example.features.feature[_LABEL].int64_list.value if example else ()
            problem, messages = images.label_problem(max(labels, default=0)), ''
            if not problem:
                problem, messages = native_messages.during(functools.partial(images.of_records.problem, serialized))
            if not problem and not example:
                # TensorFlow can read the image and label of some damaged records that Python cannot parse.
                problem = record_checker.UNREADABLE
            if example and not problem and not _extension_of(_label_and_image(example)[1]):
                problem = 'not a JPEG or PNG image, the formats of tar shards.'
            if images.is_usable(path, position, problem) and example:
                images.note(path, position, _label_and_image(example)[1], messages)
                yield example
    except tf.errors.DataLossError as error:
        raise records.DataError(f'{path}: damaged or truncated: {error.message}.')


def _examples_of_tar(path: str, images: _Images) -> Iterator[tf.train.Example]:
    with Shard(path) as shard:
        for position, sample in enumerate(shard.samples()):
            problem, messages = images.label_problem(sample.label), ''
            if problem:
                problem = f'{sample.key}: {problem}'
            else:
                problem, messages = native_messages.during(functools.partial(images.of_tar.problem_of, shard, sample))
            if not images.is_usable(path, position, problem) or not sample.image:
                continue
            encoded = shard.read(sample.image.start, sample.image.size)
            images.note(path, position, encoded, messages)
            example = _kept_fields(shard, sample)
            if example:
                example.features.feature[_ENCODED].bytes_list.value[:] = [encoded]
                example.features.feature[_LABEL].int64_list.value[:] = [sample.label]
            yield example or images.example(encoded, sample.label, os.path.basename(os.fsdecode(sample.image.name)))


def _kept_fields(shard: Shard, sample: Sample) -> Optional[tf.train.Example]:
    """The fields of a record that `_add_to_tar` kept besides its image and label; None if there are none."""
    for member in sample.members:
        if member.extension == _FIELDS_EXTENSION:
            # A file with this extension from another program may have any content.
            with contextlib.suppress(ValueError, json_format.ParseError):
                fields = json.loads(shard.read(member.start, member.size).decode())
                if isinstance(fields, dict) and [*fields] == ['features']:
                    return json_format.ParseDict(fields, tf.train.Example())
    return None


def add_sample(
    archive: tarfile.TarFile, key: str, label: int, extension: str, encoded: bytes, other_files: Mapping[str, bytes]
) -> None:
    """Adds a sample to a shard that is being written.

    Args:
      archive: the shard, in POSIX's format.
      key: the beginning of the names of its files.
      label: the class, from 1 on; 0 is the background.
      extension: the extension of the image, one of `layout.IMAGE_EXTENSIONS`.
      encoded: the image file's bytes.
      other_files: the contents of other files, by extension.
    """
    files = {extension: encoded, LABEL_EXTENSION: b'%d' % label, **other_files}
    for each, content in files.items():
        header = tarfile.TarInfo(f'{key}.{each}')
        header.size = len(content)
        archive.addfile(header, io.BytesIO(content))


def _add_to_tar(archive: tarfile.TarFile, key: str, example: tf.train.Example) -> None:
    label, encoded = _label_and_image(example)
    kept = tf.train.Example()
    kept.CopyFrom(example)
    del kept.features.feature[_ENCODED], kept.features.feature[_LABEL]
    fields = json_format.MessageToJson(kept, indent=None, sort_keys=True).encode()
    add_sample(archive, key, label, str(_extension_of(encoded)), encoded, {_FIELDS_EXTENSION: fields})


def _write(
    examples: Iterator[tf.train.Example], path: str, to_tar: bool, first: int, move: conversion.Progress
) -> Tuple[SplitFingerprint, int]:
    """Writes a file of examples, numbered from `first` on, and returns their fingerprint and largest label.

    Raises:
      DataError: it cannot be written, or its source cannot be read.
    """
    written, largest = SplitFingerprint(), 0
    with _explained(path), contextlib.ExitStack() as stack:
        if to_tar:
            archive = stack.enter_context(tarfile.open(path, 'w', format=tarfile.USTAR_FORMAT))
        else:
            writer = stack.enter_context(tf.io.TFRecordWriter(path))
        for number, example in enumerate(examples, first):
            move(number + 1)
            label, encoded = _label_and_image(example)
            written, largest = written.with_image(label, encoded), max(largest, label)
            if to_tar:
                _add_to_tar(archive, f'{number:08d}', example)
            else:
                writer.write(example.SerializeToString(deterministic=True))
    return written, largest


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turns errors of the operating system or TensorFlow while a file is written into clear messages."""
    try:
        yield
    except OSError as error:
        # The error of a full disk names no file.
        action = 'written' if error.filename in (None, path) else 'read'
        raise records.DataError(f'{error.filename or path}: cannot be {action}: {error.strerror}. Nothing was written.')
    except tf.errors.OpError as error:
        raise records.DataError(f'{path}: cannot be made: {error.message}. Nothing was written.')


def convert(source: str, target: str, max_bad_records: int, say: Callable[[str], None]) -> None:
    """Converts a data set of record files to tar shards, or one of tar shards to record files.

    The number of files and the order of the images stay the same. `dataset.json` is written if there are both splits.

    Args:
      source: folder of the files.
      target: folder for the new files, which must be missing or empty.
      max_bad_records: the number of unusable images that may be left out.
      say: called with messages about the progress.

    Raises:
      DataError: the source cannot be used or described, or has more unusable images; or the target is not empty.
      RemoteError: access to the source is denied, or the store cannot be reached.
    """
    writing.check_can_be_made(target)
    names = remote.names_in(source) or []
    all_splits = (records.TRAIN, records.VALIDATION)
    to_tar = not any(records.is_tar_shard(name, split) for name in names for split in all_splits)
    find, examples_of = (
        (records.find_shards, _examples_of_records) if to_tar else (tar_files.find_shards, _examples_of_tar)
    )
    path_of = tar_files.shard_path if to_tar else records.shard_path
    # If neither split is present, `find` raises the usual error.
    splits = [s for s in all_splits if any(name.startswith(f'{s}-') for name in names)]
    paths = {split: find(source, split) for split in splits or [records.TRAIN]}
    for of_split in paths.values():
        checks.check_are_files(of_split)
    info = dataset_info.read(source)
    totals: Dict[str, SplitFingerprint] = {}
    largest = 0
    expected = {records.TRAIN: info.train_images, records.VALIDATION: info.validation_images} if info else {}
    with writing.new_data_dir(target) as unfinished, contextlib.closing(
        _Images(info.num_classes if info else None, max_bad_records, say)
    ) as images:
        for split, of_split in paths.items():
            total = SplitFingerprint()
            with conversion.progress() as progress:
                move = progress(f'converting {split} images', expected.get(split))
                for shard, path in enumerate(of_split):
                    new = path_of(unfinished, split, shard, len(of_split))
                    written, of_shard = _write(examples_of(path, images), new, to_tar, total.images, move)
                    total, largest = total + written, max(largest, of_shard)
            totals[split] = total
            kind = 'tar file' if to_tar else 'TFRecord file'
            say(f'{counted(total.images, f"{split} image")} in {counted(len(of_split), kind)}')
        images.report_notes()
        if len(totals) < 2 or not all(total.images for total in totals.values()):
            say(f'no {dataset_info.FILE_NAME} was written: it needs both training and validation images')
        else:
            _description(source, info, totals, largest).write(unfinished)


def _description(
    source: str, info: Optional[DatasetInfo], totals: Dict[str, SplitFingerprint], largest: int
) -> DatasetInfo:
    """The description of a converted data set with the largest label `largest`.

    Raises:
      DataError: it would not be valid.
    """
    if info is None:
        names = ['background', *map(str, range(1, largest + 1))]
        info = DatasetInfo(os.path.basename(os.path.abspath(source)), source, 1, 1, len(names), names)
    train, validation = totals[records.TRAIN], totals[records.VALIDATION]
    info = dataclasses.replace(
        info,
        train_images=train.images,
        validation_images=validation.images,
        fingerprint=fingerprint(train, validation),
        # Counted anew: unusable images are left out.
        validation_records_per_file=[],
    )
    problem = info.problem()
    if problem:
        raise records.DataError(
            f'{source}: cannot be described in {dataset_info.FILE_NAME}: {problem}. Its largest label is {largest}, '
            'and 0 is the background. Nothing was written.'
        )
    return info


def list_samples(paths: Sequence[str]) -> bool:
    """Prints a line for each sample of some shards, and returns whether all of them can be used.

    Raises:
      DataError, RemoteError: a shard cannot be read.
    """
    are_usable = True
    for path in paths:
        print(path)
        try:
            for line, is_usable in _lines(path):
                print(line)
                are_usable = are_usable and is_usable
        except tf.errors.OpError as error:
            raise records.DataError(f'{path}: cannot be read: {error.message}')
    return are_usable


def _lines(path: str) -> Iterator[Tuple[str, bool]]:
    """Yields a line of text for each sample of a shard, and whether the sample has no problem."""
    with Shard(path) as shard:
        position = 0
        for sample in shard.everything():
            members = '  '.join(f'{shown(member.extension) or "?"} {member.size:,}' for member in sample.members)
            is_left_out = sample.problem is Problem.LEFT_OUT
            number = '-' if is_left_out else position
            label = '' if sample.problem else f'label {sample.label}  '
            problem = f'  {sample.problem!s}' if sample.problem else ''
            yield f'{number}  {printable(sample.key)}  {label}{members}{problem}', is_left_out or not sample.problem
            position += not is_left_out
