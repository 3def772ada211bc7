"""Tar shards as the webdataset package has them (`data.tar_layout`): made of TFRecord files, and shown.

python -m data.tar_shards write SOURCE TARGET   the same images as tar shards, or, if they are, as TFRecord files
python -m data.tar_shards list SHARD ...        the samples of shards: place, key, label, files and their bytes
"""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
import tarfile
from typing import Callable, Iterator, List, Mapping, Optional, Tuple

import tensorflow as tf
from google.protobuf import json_format

from console.messages import shown
from data import dataset_info, ppm, record_checker, records, remote
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.tar import layout as tar_layout
from data.tar.layout import LABEL_EXTENSION, SampleChecker, Shard
from preprocessing.decoding import decode_image

# What a tar file keeps of a record besides its image and label, so that it can be one again.
_OTHERS_EXTENSION = 'json'
_EXTENSIONS_BY_MAGIC = {b'\xff\xd8': 'jpg', b'\x89PNG': 'png'}
_ENCODED, _LABEL = 'image/encoded', 'image/class/label'
# Of a source that does not describe its classes: each becomes a name in `dataset.json`.
_CLASSES_AT_MOST = 1_000_000


class _Images:
    """What converting does with images, and which it had to leave out.

    Args:
      num_classes: labels must be below it; None if nothing says how many classes there are.
      max_bad_records: images that may be left out.
      say: called with a line for the user about each.
    """

    def __init__(self, num_classes: Optional[int], max_bad_records: int, say: Callable[[str], None]):
        with tf.Graph().as_default() as graph:
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._png = ppm.as_png(self._encoded)
            self._shape = tf.shape(decode_image(self._png))
        self._session = tf.compat.v1.Session(graph=graph)
        self._are_described = num_classes is not None
        labels_below = _CLASSES_AT_MOST if num_classes is None else num_classes
        self.of_records = record_checker.RecordChecker(labels_below, decode_image)
        self.of_tar = SampleChecker(labels_below, lambda image: decode_image(ppm.as_png(image)))
        self._left, self._say = max_bad_records, say

    def close(self) -> None:
        """Lets go of TensorFlow's resources."""
        for each in (self._session, self.of_records, self.of_tar):
            each.close()

    def label_problem(self, label: int) -> Optional[str]:
        """Why a label cannot be used where nothing says how many classes there are; None if it can, or that is said."""
        if self._are_described or 0 <= label < _CLASSES_AT_MOST:
            return None
        return (
            f'label {label} is not in 0 to {_CLASSES_AT_MOST - 1:,}, where the labels of a source without '
            f'{dataset_info.FILE_NAME} must be.'
        )

    def is_usable(self, path: str, position: int, problem: Optional[str]) -> bool:
        """Whether there is no problem; says so if there is.

        Raises:
          DataError: there is one, and no more may be left out.
        """
        if not problem:
            return True
        bad = record_checker.BadRecord(path, position, problem)
        if not self._left:
            raise records.DataError(f'{bad} Nothing was written. --max_bad_records=N leaves out as many.')
        self._left -= 1
        self._say(f'left out {bad}')
        return False

    def example(self, encoded: bytes, label: int, filename: str) -> tf.train.Example:
        """A record of an image of which nothing else is known."""
        encoded, (height, width, _) = self._session.run([self._png, self._shape], {self._encoded: encoded})
        return records.make_example(encoded, records.format_of(encoded), label, '', int(height), int(width), filename)


def _extension_of(encoded: bytes) -> Optional[str]:
    return next((name for magic, name in _EXTENSIONS_BY_MAGIC.items() if encoded.startswith(magic)), None)


def _examples_of_records(path: str, images: _Images) -> Iterator[tf.train.Example]:
    try:
        for position, serialized in enumerate(records.serialized_in(path)):
            example = record_checker.parse_example(serialized)
            labels = example.features.feature[_LABEL].int64_list.value if example else ()
            problem = images.label_problem(max(labels, default=0)) or images.of_records.problem(serialized)
            if not problem and not example:
                # TensorFlow understands more of what is damaged than Python, at times.
                problem = record_checker.UNREADABLE
            if example and not problem and not _extension_of(example.features.feature[_ENCODED].bytes_list.value[0]):
                problem = 'neither JPEG nor PNG, which tar shards hold.'
            if images.is_usable(path, position, problem) and example:
                yield example
    except tf.errors.DataLossError as error:
        raise records.DataError(f'{path}: damaged or cut short: {error.message}.')


def _examples_of_tar(path: str, images: _Images) -> Iterator[tf.train.Example]:
    with Shard(path) as shard:
        for position, sample in enumerate(shard.samples()):
            problem = images.label_problem(sample.label)
            problem = f'{sample.key}: {problem}' if problem else images.of_tar.problem_of(shard, sample)
            if not images.is_usable(path, position, problem) or not sample.image:
                continue
            encoded = shard.read(sample.image.start, sample.image.size)
            example = _others_of(shard, sample)
            if example:
                example.features.feature[_ENCODED].bytes_list.value[:] = [encoded]
                example.features.feature[_LABEL].int64_list.value[:] = [sample.label]
            yield example or images.example(encoded, sample.label, os.path.basename(os.fsdecode(sample.image.name)))


def _others_of(shard: Shard, sample: tar_layout.Sample) -> Optional[tf.train.Example]:
    """What `_add_to_tar` kept of a record besides its image and label; None if that is not there."""
    for member in sample.members:
        if member.extension == _OTHERS_EXTENSION:
            # Another program's file of that name may have any content.
            with contextlib.suppress(ValueError, json_format.ParseError):
                others = json.loads(shard.read(member.start, member.size).decode())
                if isinstance(others, dict) and [*others] == ['features']:
                    return json_format.ParseDict(others, tf.train.Example())
    return None


def add_sample(
    archive: tarfile.TarFile, key: str, label: int, extension: str, encoded: bytes, others: Mapping[str, bytes]
) -> None:
    """Adds a sample to a shard that is being written.

    Args:
      archive: the shard, in POSIX's format.
      key: what the names of its files begin with.
      label: the class, from 1 on; 0 is the background.
      extension: that of the image, one of `tar_layout.IMAGE_EXTENSIONS`.
      encoded: the bytes of the image's file.
      others: what else there is, by extension.
    """
    files = {extension: encoded, LABEL_EXTENSION: b'%d' % label, **others}
    for each, content in files.items():
        header = tarfile.TarInfo(f'{key}.{each}')
        header.size = len(content)
        archive.addfile(header, io.BytesIO(content))


def _add_to_tar(archive: tarfile.TarFile, key: str, example: tf.train.Example) -> None:
    feature = example.features.feature
    encoded, label = feature[_ENCODED].bytes_list.value[0], feature[_LABEL].int64_list.value[0]
    others = tf.train.Example()
    others.CopyFrom(example)
    del others.features.feature[_ENCODED], others.features.feature[_LABEL]
    kept = json_format.MessageToJson(others, indent=None, sort_keys=True).encode()
    add_sample(archive, key, label, str(_extension_of(encoded)), encoded, {_OTHERS_EXTENSION: kept})


def _write(examples: Iterator[tf.train.Example], path: str, to_tar: bool, first: int) -> SplitFingerprint:
    """Writes a file, and returns the fingerprint of what is in it; `first` is the number of its first image.

    Raises:
      DataError: it cannot be written, or what it is made of cannot be read.
    """
    written = SplitFingerprint()
    with _told(path), contextlib.ExitStack() as stack:
        if to_tar:
            archive = stack.enter_context(tarfile.open(path, 'w', format=tarfile.USTAR_FORMAT))
        else:
            writer = stack.enter_context(tf.io.TFRecordWriter(path))
        for number, example in enumerate(examples, first):
            feature = example.features.feature
            label, encoded = feature[_LABEL].int64_list.value[0], feature[_ENCODED].bytes_list.value[0]
            written = written.with_image(label, encoded)
            if to_tar:
                _add_to_tar(archive, f'{number:08d}', example)
            else:
                writer.write(example.SerializeToString(deterministic=True))
    return written


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turns what the system refuses while a file is written into a message."""
    try:
        yield
    except OSError as error:
        # A disk that is full names no file.
        what = 'written' if error.filename in (None, path) else 'read'
        raise records.DataError(f'{error.filename or path}: cannot be {what}: {error.strerror}. Nothing was written.')


def convert(source: str, target: str, max_bad_records: int, say: Callable[[str], None]) -> None:
    """Writes the tar shards of a data set of record files, or the record files of one of tar shards.

    Files stay as many, and their images in the same order. `dataset.json` is written, too, if there are both splits.

    Args:
      source: folder of the files.
      target: folder to make.
      max_bad_records: images that may be left out because they cannot be used.
      say: called with lines for the user.

    Raises:
      DataError: the source cannot be used or described, or holds more such images; or the target holds something.
      RemoteError: the source is refused, or cannot be reached.
    """
    records.check_can_be_made(target)
    names = remote.names_in(source) or []
    all_splits = (records.TRAIN, records.VALIDATION)
    to_tar = not any(records.is_tar_shard(name, split) for name in names for split in all_splits)
    find, examples_of = (
        (records.find_shards, _examples_of_records) if to_tar else (tar_layout.find_shards, _examples_of_tar)
    )
    # Of neither, the usual complaint.
    splits = [s for s in all_splits if any(name.startswith(f'{s}-') for name in names)]
    paths = {split: find(source, split) for split in splits or [records.TRAIN]}
    for of_split in paths.values():
        records.check_are_files(of_split)
    info = dataset_info.read(source)
    totals = {}
    with records.new_data_dir(target) as unfinished, contextlib.closing(
        _Images(info.num_classes if info else None, max_bad_records, say)
    ) as images:
        labels: List[int] = []
        for split, of_split in paths.items():
            total = SplitFingerprint()
            path_of = tar_layout.shard_path if to_tar else records.shard_path
            for shard, path in enumerate(of_split):
                examples = _noting_labels(examples_of(path, images), labels)
                new = path_of(unfinished, split, shard, len(of_split))
                total += _write(examples, new, to_tar, total.images)
            totals[split] = total
            say(f'{total.images:,} {split} images in {len(of_split):,} {"tar" if to_tar else "TFRecord"} files')
        if len(totals) < 2 or not all(total.images for total in totals.values()):
            say(f'no {dataset_info.FILE_NAME}: it describes data sets of training and validation images')
            return
        if info is None:
            names = ['background', *map(str, range(1, max(labels) + 1))]
            info = DatasetInfo(os.path.basename(os.path.abspath(source)), source, 1, 1, len(names), names)
        info = dataclasses.replace(
            info,
            train_images=totals[records.TRAIN].images,
            validation_images=totals[records.VALIDATION].images,
            fingerprint=fingerprint(totals[records.TRAIN], totals[records.VALIDATION]),
        )
        problem = info.problem()
        if problem:
            raise records.DataError(
                f'{source}: cannot be described in {dataset_info.FILE_NAME}: {problem}. Its largest '
                f'label is {max(labels)}, and 0 is the background. Nothing was written.'
            )
        info.write(unfinished)


def _noting_labels(examples: Iterator[tf.train.Example], labels: List[int]) -> Iterator[tf.train.Example]:
    """The examples, as they are; the largest label that was met is left in `labels`."""
    for example in examples:
        labels[:] = [max([*labels, example.features.feature[_LABEL].int64_list.value[0]])]
        yield example


def lines(path: str) -> Iterator[Tuple[str, bool]]:
    """The samples of a shard, a line each, and whether one has no problem."""
    with Shard(path) as shard:
        for position, sample in enumerate(shard.samples()):
            members = '  '.join(f'{shown(member.extension) or "?"} {member.size:,}' for member in sample.members)
            if sample.problem:
                yield f'{position}  {sample.key}  {members}  {sample.problem!s}', False
            else:
                yield f'{position}  {sample.key}  label {sample.label}  {members}', True


def main() -> int:
    """Converts or lists what the command line names; 1 if a sample that is listed has a problem."""
    parser = argparse.ArgumentParser(
        prog='python -m data.tar_shards', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True)
    write = commands.add_parser('write', help='tar shards of TFRecord files, or TFRecord files of tar shards')
    write.add_argument('source', help='folder of train-* and validation-* files')
    write.add_argument('target', help='folder to make')
    write.add_argument('--max_bad_records', type=int, default=0, help='images that may be left out (default 0)')
    listing = commands.add_parser('list', help='the samples of shards, a line each')
    listing.add_argument('shards', nargs='+', metavar='SHARD')
    arguments = parser.parse_args()
    if arguments.command == 'write' and arguments.max_bad_records < 0:
        parser.error(f'--max_bad_records={arguments.max_bad_records}: must be at least 0.')
    try:
        if arguments.command == 'write':
            convert(
                arguments.source, arguments.target, arguments.max_bad_records, lambda line: print(line, file=sys.stderr)
            )
            return 0
        fine = True
        for path in arguments.shards:
            print(path)
            for line, is_fine in lines(path):
                print(line)
                fine = fine and is_fine
        return 0 if fine else 1
    except (records.DataError, remote.RemoteError) as error:
        parser.error(str(error))
    except tf.errors.OpError as error:
        parser.error(error.message)
    except BrokenPipeError:
        # `| head` has seen enough, and Python would complain again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
