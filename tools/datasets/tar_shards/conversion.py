"""Converts data sets between record files and tar shards, and describes the samples of a shard."""

import contextlib
import dataclasses
import functools
import os
from typing import Dict, Iterator, List, Optional, Sequence

from google.protobuf import json_format

from compat import native_messages, tf
from compat.errors import CommandError
from compat.messages import counted, printable, shown
from console.json_content import from_json
from data import checks, dataset_info, ppm, records, remote, tf_example, tfrecord_files
from data.formats import FORMATS
from data.record_checker import UNREADABLE, BadRecord, parse_example
from data.records import TRAIN, VALIDATION, DataError
from data.sources import Source
from data.tar.layout import DOCUMENTED_LABEL, LABEL_EXTENSION, Problem, label_of
from data.tar.shard import Sample, Shard
from data.tf_example import Fields
from preprocessing.decoding import decode_image
from tools import image_header
from tools.datasets import conversion, image_example, writing
from tools.datasets.conversion import Say
from tools.datasets.fingerprints import SplitFingerprint, fingerprint
from tools.datasets.intake import DAMAGED, ROTATED, damage_in

# A source without `dataset.json` may have every label.
_ANY_CLASSES = 1 << 63


class _Reader:
    """Reads a format's Examples with labels below `num_classes`, and leaves out up to `max_bad_records` bad ones."""

    def __init__(self, data_format: str, num_classes: int, max_bad_records: int, say: Say, fields: Fields):
        with tf.Graph().as_default() as graph:
            self._encoded = tf.placeholder(tf.string, [])
            self._png = ppm.as_png(self._encoded)
            self._shape = tf.shape(decode_image(self._png))
        self._session = tf.Session(graph=graph)
        self._checker = checks.checker(data_format, num_classes, True, fields)
        self._fields = fields
        self.remaining, self._say, self._num_classes = max_bad_records, say, num_classes
        self.notes: Dict[str, List[str]] = {}

    def close(self) -> None:
        """Closes the TensorFlow sessions."""
        for each in (self._session, self._checker):
            each.close()

    def of_record_file(self, path: str) -> Iterator[tf.train.Example]:
        """Yields the Examples of a record file with usable images."""
        try:
            for position, serialized in enumerate(tfrecord_files.serialized_in(path)):
                problem, messages = native_messages.during(functools.partial(self._checker.problem, serialized))
                example = self._documented(parse_example(serialized))
                encoded = writing.label_and_image(example)[1] if example else b''
                problem = (example and self._label_problem(writing.label_and_image(example)[0])) or problem
                if not problem and not example:
                    # TensorFlow can read the image and label of some damaged records that Python cannot parse.
                    problem = UNREADABLE
                if not problem and not writing.extension_of(encoded):
                    problem = 'not a JPEG or PNG image, the formats of tar shards.'
                if self._is_usable(path, position, problem):
                    self._note(path, position, encoded, messages)
                    yield example
        except tf.errors.DataLossError as error:
            raise DataError(f'{path}: damaged or truncated: {error.message}.')

    def of_shard(self, path: str) -> Iterator[tf.train.Example]:
        """Yields the Examples of a shard's usable samples."""
        for position, record in enumerate(self._checker.records(path)):
            problem, messages = native_messages.during(functools.partial(self._checker.problem, record))
            shard, sample = record
            of_label = self._label_problem(sample.label + self._fields.label_offset)
            problem = f'{sample.prefix}{of_label}' if of_label else problem
            if self._is_usable(path, position, problem) and sample.image:
                encoded = shard.read(sample.image.start, sample.image.size)
                self._note(path, position, encoded, messages)
                yield self._example(shard, sample, encoded, os.fsdecode(sample.image.name))

    def _documented(self, example: Optional[tf.train.Example]) -> Optional[tf.train.Example]:
        """An Example with its image and label in the documented fields, with the offset added."""
        fields, documented = self._fields, tf_example.DOCUMENTED_FIELDS
        if not example or fields == documented:
            return example
        feature = example.features.feature
        labels, images = feature[fields.label].int64_list.value[:1], feature[fields.image].bytes_list.value[:1]
        for name in {*fields[:2], *documented[:2]} & {*feature}:
            del feature[name]
        feature[documented.label].int64_list.value[:] = [label + fields.label_offset for label in labels]
        feature[documented.image].bytes_list.value[:] = images
        return example

    def _label_problem(self, label: Optional[int]) -> Optional[str]:
        """The problem of a label after the addition of the offset, without flags that this command has not."""
        if label is None or 0 <= label < self._num_classes:
            return None
        if self._num_classes == _ANY_CLASSES:
            return f'label {label} is below 0.'
        return f'label {label} is not in 0 to {self._num_classes - 1}, the classes of the {dataset_info.FILE_NAME}.'

    def _is_usable(self, path: str, position: int, problem: Optional[str]) -> bool:
        """Whether an image has no problem. Otherwise, reports and counts the image."""
        if not problem:
            return True
        bad = BadRecord(path, position, problem)
        if not self.remaining:
            raise DataError(f'{bad} Nothing was written. --max_bad_records=N leaves out up to N such images.')
        self.remaining -= 1
        self._say(f'left out {bad}')
        return False

    def _note(self, path: str, position: int, encoded: bytes, messages: str) -> None:
        """Notes the damage and the EXIF orientation of an image that is kept; `messages`: those of its decoding."""
        place = f'{path}, record {position}'
        damage = damage_in(messages)
        if damage:
            self.notes.setdefault(DAMAGED, []).append(f'{place} ({damage})')
        if image_header.orientation(encoded) != image_header.UPRIGHT:
            self.notes.setdefault(ROTATED, []).append(place)

    def _example(self, shard: Shard, sample: Sample, encoded: bytes, name: str) -> tf.train.Example:
        """The Example that a sample was made of, or a new one."""
        label = sample.label + self._fields.label_offset
        for member in sample.members:
            if member.extension == writing.FIELDS_EXTENSION:
                # A file with this extension from another program may have any content.
                with contextlib.suppress(ValueError, json_format.ParseError):
                    fields = from_json(shard.read(member.start, member.size), lambda values: values)
                    if isinstance(fields, dict) and [*fields] == ['features']:
                        example = json_format.ParseDict(fields, tf.train.Example())
                        example.features.feature[writing.ENCODED].bytes_list.value[:] = [encoded]
                        example.features.feature[writing.LABEL].int64_list.value[:] = [label]
                        return example
        encoded, (height, width, _) = self._session.run([self._png, self._shape], {self._encoded: encoded})
        return image_example.make_example(
            encoded, image_example.format_of(encoded), label, '', int(height), int(width), os.path.basename(name)
        )


def convert(
    source: str, target: str, max_bad_records: int, say: Say, fields: Fields = tf_example.DOCUMENTED_FIELDS
) -> None:
    """Converts a data set of record files to tar shards, or one of tar shards to record files.

    The number of files and the order of the images stay the same. The fields are the source's; the target has the
    documented ones. `dataset.json` is written if the source has one, and there are training images. Raises DataError
    for more than `max_bad_records` unusable images.
    """
    writing.check_can_be_made(target)
    names = remote.names_in(source) or []
    to_tar = not any(records.is_tar_shard(name, split) for name in names for split in (TRAIN, VALIDATION))
    of_source, of_target = (FORMATS[each] for each in (('tfrecord', 'tar') if to_tar else ('tar', 'tfrecord')))
    if not to_tar:
        _check_of_tar(fields)
    # If neither split is present, `find_shards` raises the usual error.
    splits = [s for s in (TRAIN, VALIDATION) if any(name.startswith(f'{s}-') for name in names)]
    paths = {split: of_source.find_shards(source, split) for split in splits or [TRAIN]}
    of_files = Source(source, 'tfrecord' if to_tar else 'tar')
    for split, of_split in paths.items():
        checks.check_are_files(of_split)
        missing = checks.missing(of_files, split, of_split)
        if missing:
            say(f'warning: {source}: {checks.incomplete(split, missing, len(of_split))}')
    info = dataset_info.read(source)
    totals: Dict[str, SplitFingerprint] = {}
    expected = {TRAIN: info.train_images, VALIDATION: info.validation_images} if info else {}
    with writing.new_data_dir(target) as unfinished, contextlib.closing(
        _Reader(of_files.data_format, info.num_classes if info else _ANY_CLASSES, max_bad_records, say, fields)
    ) as reader:
        read = reader.of_record_file if to_tar else reader.of_shard
        for split, of_split in paths.items():
            total, spared = SplitFingerprint(), reader.remaining
            with conversion.progress() as progress:
                move = progress(f'converting {split} images', expected.get(split))
                for shard, path in enumerate(of_split):
                    new = of_target.shard_path(unfinished, split, shard, len(of_split))
                    examples = conversion.watched(read(path), move, total.images)
                    total += writing.write_file(new, examples, total.images)
            totals[split] = total
            found = total.images + spared - reader.remaining
            if split in expected and found != expected[split]:
                say(f'warning: {source}: {checks.other_count(split, found, expected[split])}')
            kind = 'tar file' if to_tar else 'TFRecord file'
            say(f'{counted(total.images, f"{split} image")} in {counted(len(of_split), kind)}')
        conversion.say_notes(reader.notes, say)
        train, validation = (totals.get(split, SplitFingerprint()) for split in (TRAIN, VALIDATION))
        if not info or not train.images:
            say(f'no {dataset_info.FILE_NAME} was written: it needs that of the source, and training images')
            return
        # Where label 0 is the background, labels from 0 on are not those of `class_names`: a run adds --label_offset.
        is_shifted = dataset_info.is_background(info.class_names[0]) and 0 in train.images_by_label
        dataclasses.replace(
            info,
            train_images=train.images,
            validation_images=validation.images,
            fingerprint=fingerprint(train, validation),
            # Counted anew: unusable images are left out.
            validation_records_per_file=[],
            train_images_per_class=[] if is_shifted else train.images_of(info.num_classes),
        ).write(unfinished)


def _check_of_tar(fields: Fields) -> None:
    """Raises CommandError if the fields are those of records: a shard has files."""
    documented = tf_example.DOCUMENTED_FIELDS
    if fields.image != documented.image:
        raise CommandError(f'--image_key={shown(fields.image)}: is for TFRecord files. Leave out the flag.')
    if fields.label not in (documented.label, LABEL_EXTENSION) and label_of(fields.label) == DOCUMENTED_LABEL:
        raise CommandError(
            f'--label_key={shown(fields.label)}: must be the extension of a file beside the image, such as txt, or '
            'json:NAME, a whole number in KEY.json.'
        )


def list_samples(
    paths: Sequence[str], label_key: str = tf_example.DOCUMENTED_FIELDS.label, label_offset: int = 0
) -> bool:
    """Prints a line for each sample of some shards, and returns whether all of them can be used.

    The arguments of labels are those of `Fields`.
    """
    _check_of_tar(tf_example.DOCUMENTED_FIELDS._replace(label=label_key))
    are_usable = True
    for path in paths:
        print(path)
        try:
            with Shard(path) as shard:
                position = 0
                for sample in shard.everything(label_of(label_key)):
                    members = [f'{shown(member.extension) or "?"} {member.size:,}' for member in sample.members]
                    is_left_out = sample.problem is Problem.LEFT_OUT
                    label = [] if sample.problem else [f'label {sample.label + label_offset}']
                    problem = [sample.description] if sample.problem else []
                    number = '-' if is_left_out else str(position)
                    print('  '.join([number, printable(sample.key), *label, *members, *problem]))
                    are_usable = are_usable and (is_left_out or not sample.problem)
                    position += not is_left_out
        except tf.errors.OpError as error:
            raise DataError(f'{path}: cannot be read: {error.message}')
    return are_usable
