"""Record files in ImageNet's layout: `train-00000-of-01024 …` and `validation-00000-of-00128 …`.

Each is a TFRecord file of `tf.train.Example`s, one per image.
"""

import concurrent.futures
import contextlib
import functools
import io
import itertools
import os
import re
import shutil
import tempfile
from typing import BinaryIO, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from console.errors import CommandError
from data import remote
from data.fingerprint import SplitFingerprint

TRAIN = 'train'
VALIDATION = 'validation'
# ImageNet's layout: the record files of each split.
DOCUMENTED_SHARDS = {TRAIN: 1024, VALIDATION: 128}

# The sides of a bounding box, in the order in which training takes them.
CORNERS = ('ymin', 'xmin', 'ymax', 'xmax')

# What a TFRecord file has around each record: the length, its checksum, and the record's.
_LENGTH_BYTES = 8
FRAME_BYTES = _LENGTH_BYTES + 4 + 4
# No Example has as many bytes: protocol buffers end there.
_TOO_LONG = 2**31
# A data set on this machine of as many bytes is looked through in seconds for such a length, before it is read.
_LOOKED_THROUGH = 16 << 30
# The names of tar shards, after their split.
TAR_NAMES = r'-\d+(-of-\d+)?\.tar'
# What tells images apart that are no JPEG files, whatever they are named.
_FORMATS = {b'\x89PNG': 'PNG', b'GIF8': 'GIF'}
# Questions put to a remote file system at the same time.
_PARALLEL_REQUESTS = 32


# What the pipeline says of a record that is no Example, and then the record: TensorFlow makes a Python text of it,
# and the process crashes where it is none in UTF-8. But a zero ends the text; and to protocol buffers, a tag and a
# zero before the record are a field that nobody knows.
UNPARSABLE = 'Could not parse example input'
_MESSAGE_ENDS = b'\x10\0'


class DataError(CommandError, ValueError):
    """Data that a run cannot use."""


class ParsedRecord(NamedTuple):
    """What training and evaluation take from a record.

    Attributes:
      encoded: string scalar, the image file's bytes.
      label: int64 scalar; 0 is the background.
      bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax, clipped to [0, 1].
    """

    encoded: tf.Tensor
    label: tf.Tensor
    bbox: tf.Tensor


class Box(NamedTuple):
    """A bounding box, in fractions of the image's width and height: 0 <= min < max <= 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def parse(serialized: tf.Tensor, with_boxes: bool = True) -> ParsedRecord:
    """Parses a serialized `tf.train.Example`, as TensorFlow operations.

    With boxes, a list of floats that says it is longer than its record crashes TensorFlow. Checksums keep damage from
    making such a record: only a program that writes wrong ones can.

    Args:
      serialized: a string scalar, the record.
      with_boxes: read its bounding boxes, too, which takes longer than all the rest; without, there are none.

    Raises:
      tf.errors.InvalidArgumentError: when run on a record that is no Example, or lacks its image or label.
    """
    features = {
        'image/encoded': tf.io.FixedLenFeature([], tf.string),
        'image/class/label': tf.io.FixedLenFeature([], tf.int64),
    }
    if with_boxes:
        features.update({f'image/object/bbox/{c}': tf.io.VarLenFeature(tf.float32) for c in CORNERS})
    parsed = tf.io.parse_single_example(tf.strings.join([_MESSAGE_ENDS, serialized]), features)
    bbox = tf.zeros([0, 4])
    if with_boxes:
        bbox = tf.stack([parsed[f'image/object/bbox/{c}'].values for c in CORNERS], axis=-1)
    return ParsedRecord(
        parsed['image/encoded'],
        parsed['image/class/label'],
        tf.clip_by_value(bbox, 0.0, 1.0)[tf.newaxis],
    )


def make_example(
    encoded: bytes,
    image_format: str,
    label: int,
    text: str,
    height: int,
    width: int,
    filename: str,
    synset: str = '',
    boxes: Sequence[Box] = (),
) -> tf.train.Example:
    """An image as an Example in ImageNet's layout.

    Args:
      encoded: the image file's bytes.
      image_format: 'JPEG', 'PNG' or 'GIF'.
      label: the class, from 1 on; 0 is the background.
      text: the name of the class.
      height: height of the image, in pixels.
      width: width of the image, in pixels.
      filename: where the image comes from.
      synset: WordNet's identifier of the class, such as 'n01440764'; '' if it has none.
      boxes: where objects of the class are in the image.
    """

    def of_bytes(*values: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def of_ints(*values: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def of_floats(*values: float) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    feature = {
        'image/encoded': of_bytes(encoded),
        'image/format': of_bytes(image_format.encode()),
        'image/class/label': of_ints(label),
        'image/class/text': of_bytes(os.fsencode(text)),
        'image/height': of_ints(height),
        'image/width': of_ints(width),
        'image/colorspace': of_bytes(b'RGB'),
        'image/channels': of_ints(3),
        'image/filename': of_bytes(os.fsencode(filename)),
    }
    if synset:
        feature['image/class/synset'] = of_bytes(synset.encode())
    if boxes:
        feature['image/object/class/label'] = of_ints(*[label] * len(boxes))
        for corner, values in zip(Box._fields, zip(*boxes)):
            feature[f'image/object/bbox/{corner}'] = of_floats(*values)
    return tf.train.Example(features=tf.train.Features(feature=feature))


def format_of(encoded: bytes) -> str:
    """The format of an image that can be decoded, for `make_example`."""
    return next((name for start, name in _FORMATS.items() if encoded.startswith(start)), 'JPEG')


def shard_path(data_dir: str, split: str, shard: int, shards: int) -> str:
    """The path of a record file, such as `DIR/train-00000-of-01024`."""
    return os.path.join(data_dir, f'{split}-{shard:05d}-of-{shards:05d}')


def check_can_be_made(data_dir: str) -> None:
    """Makes sure that a data set can be written to a folder, before there is anything to write.

    Raises:
      DataError: it exists and holds something, or is not on this machine.
    """
    if remote.is_remote(data_dir):
        raise DataError(
            f'{data_dir}: data sets are made on this machine. Make it in a folder here, and copy that: gsutil -m cp -r '
            f'FOLDER {data_dir}, or aws s3 cp --recursive FOLDER {data_dir}.'
        )
    if os.path.exists(data_dir) and not (os.path.isdir(data_dir) and not os.listdir(data_dir)):
        raise DataError(f'{data_dir}: exists already. Name a new folder.')


@contextlib.contextmanager
def new_data_dir(data_dir: str) -> Iterator[str]:
    """A folder to write a data set to, which takes its name when the block ends well.

    What is stopped half-way leaves nothing that could be taken for a data set.

    Raises:
      DataError: `data_dir` exists and holds something, is not on this machine, or cannot be made.
    """
    check_can_be_made(data_dir)
    target = os.path.abspath(data_dir)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        unfinished = tempfile.mkdtemp(prefix='.unfinished-', dir=os.path.dirname(target))
    except OSError as error:
        raise DataError(f'{data_dir}: cannot be made: {error.strerror}.')
    try:
        yield unfinished
        os.chmod(unfinished, 0o755)
        try:
            os.rename(unfinished, target)
        except OSError as error:
            raise DataError(f'{data_dir}: cannot be made: {error.strerror}.')
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_shards(
    data_dir: str, split: str, examples: Sequence[Callable[[], tf.train.Example]], shards: int
) -> SplitFingerprint:
    """Writes examples to `shards` record files, in order and in shares that differ by one at the most.

    Args:
      data_dir: the folder, which must exist.
      split: `TRAIN` or `VALIDATION`.
      examples: functions that make the examples, so that not all are in memory at once.
      shards: the number of files.

    Returns:
      The fingerprint of those that have an image and a label.

    Raises:
      DataError: a file cannot be written.
    """
    written = SplitFingerprint()
    for shard in range(shards):
        share = examples[len(examples) * shard // shards : len(examples) * (shard + 1) // shards]
        try:
            with tf.io.TFRecordWriter(shard_path(data_dir, split, shard, shards)) as writer:
                for make in share:
                    # The order of an Example's fields is random otherwise, and the same data another file each time.
                    example = make()
                    writer.write(example.SerializeToString(deterministic=True))
                    feature = example.features.feature
                    label = feature['image/class/label'].int64_list.value
                    encoded = feature['image/encoded'].bytes_list.value
                    if label and encoded:
                        written = written.with_image(label[0], encoded[0])
        except tf.errors.OpError as error:
            raise DataError(f'{data_dir}: the {split} files cannot be written: {error.message}.')
    return written


def find_shards(data_dir: str, split: str) -> List[str]:
    """The record files of a split, in order.

    Raises:
      DataError: the folder does not exist, has none, or has those of several data sets.
      RemoteError: it may not be listed, or cannot be reached.
    """
    example = os.path.basename(shard_path(data_dir, split, 0, DOCUMENTED_SHARDS[split]))
    return list_shards(data_dir, split, r'-\d+(-of-\d+)$', example)


def list_shards(data_dir: str, split: str, pattern: str, example: str) -> List[str]:
    """The files of a split, in order.

    Args:
      data_dir: the folder.
      split: `TRAIN` or `VALIDATION`.
      pattern: what follows the split in their names, a regular expression; its group is the same in those of a set.
      example: such a name, for messages.

    Raises:
      DataError, RemoteError: as `find_shards`.
    """
    try:
        names = remote.names_in(data_dir)
    except tf.errors.OpError as error:
        raise DataError(f'--data_dir={data_dir}: cannot be listed: {error.message}')
    if names is None:
        raise DataError(f'--data_dir={data_dir}: no such folder. It must hold the files of a data set.')
    # A backup, or a copy that was broken off, would give its images a second time.
    found = {name: match.group(1) for name in names for match in [re.match(split + pattern, name)] if match}
    if not found:
        others = sorted({re.sub(r'-\d{5,}(-of-\d{5,})?', '-*', name) for name in names})
        raise DataError(
            f'--data_dir={data_dir}: no {split} files, which are named like {example}; '
            + (f'it holds {", ".join(others[:5])}.' if others else 'it is empty.')
            + (' --data_format=tar reads tar files.' if any(is_tar_shard(name, split) for name in names) else '')
        )
    sets = sorted({each or '' for each in found.values()})
    if len(sets) > 1:
        kinds = ' and '.join(each or 'unnumbered' for each in sets)
        raise DataError(f'--data_dir={data_dir}: the {split} files are of several data sets, {kinds}. Keep one.')
    return [os.path.join(data_dir, name) for name in sorted(found)]


def is_tar_shard(name: str, split: str) -> bool:
    """Whether a file is named like a tar shard of a split, as `data.tar_layout` looks for them."""
    return bool(re.fullmatch(split + TAR_NAMES, name))


def _shards_of(path: str) -> int:
    """How many files there are in all, as the name of one says."""
    return int(path.rpartition('-of-')[2])


def check_enough_for(hosts: int, data_dir: Optional[str], split: str, files: int) -> None:
    """Makes sure that a split has files for every host that reads a share of them.

    Raises:
      DataError: it has fewer.
    """
    if files < hosts:
        raise DataError(
            f'--data_dir={data_dir}: {files} {split} files for {hosts} TPU hosts. Each host reads files of its own: '
            'write the data set to more of them.'
        )


def check_not_empty(paths: Sequence[str], skipped: int = 0) -> None:
    """Makes sure that files have more records than may be skipped: a pipeline that repeats nothing waits for ever.

    Args:
      paths: the files.
      skipped: how many may be.

    Raises:
      DataError: they have not, or one cannot be read.
      RemoteError: one is refused, or cannot be reached.
    """

    def begin(path: str, at_most: int) -> int:
        try:
            return sum(1 for _ in itertools.islice(serialized_in(path), at_most))
        except tf.errors.DataLossError as error:
            raise DataError(f'{path}: not a record file, or damaged near its very beginning: {error.message}.')

    check_more_than(skipped, paths, begin)
    _check_lengths(paths)


def check_more_than(skipped: int, paths: Sequence[str], begin: Callable[[str, int], int]) -> None:
    """As `check_not_empty`, for files of any format.

    Args:
      skipped: how many records may be.
      paths: the files.
      begin: counts the records of a file, up to a number.

    Raises:
      DataError, RemoteError: as `check_not_empty`.
    """
    check_are_files(paths)
    found = 0
    for path in paths:
        try:
            remote.check_readable(path)
            found += begin(path, skipped + 1 - found)
        except tf.errors.OpError as error:
            raise DataError(f'{path}: cannot be read: {error.message}')
        if found > skipped:
            return
    where = f'{paths[0]}{" and the others" if len(paths) > 1 else ""}'
    if not found:
        raise DataError(f'{where}: there is not one record in it.')
    raise DataError(
        f'{where}: {found} records, all of which --max_bad_records={skipped} lets be skipped, for ever. Allow fewer.'
    )


def check_are_files(paths: Sequence[str]) -> None:
    """Makes sure that what is named like the files of a data set is files; who reads a named pipe waits for ever.

    Raises:
      DataError: something else is.
    """
    for path in paths:
        what = no_file(path)
        if what:
            raise DataError(f'{path}: cannot be read: {what}. It is named like a file of the data set.')


def no_file(path: str) -> Optional[str]:
    """What there is in the place of a file on this machine; None if it is one, or nothing, or is elsewhere."""
    if remote.is_remote(path) or os.path.isfile(path) or not os.path.lexists(path):
        return None
    if os.path.isdir(path):
        return 'a directory'
    return 'a pipe or a device, and no file' if os.path.exists(path) else 'a link to what is not there'


def _check_lengths(paths: Sequence[str]) -> None:
    """Makes sure of two things that the input pipeline does not see, in a data set on this machine that is not huge.

    TensorFlow asks for as much memory as a record says it has bytes, and if that is not there the process ends. And it
    takes the few bytes of a length that is cut short for the end of a file.

    Raises:
      DataError: a record says that it is huge, or is cut short within its length; or a file cannot be read.
    """
    if any(remote.is_remote(path) for path in paths):
        return
    try:
        if sum(os.path.getsize(path) for path in paths) > _LOOKED_THROUGH:
            return
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
            for path, fault in zip(paths, pool.map(_unseen_fault, paths)):
                if fault:
                    raise DataError(f'{path}, {fault}')
    except OSError as error:
        raise DataError(f'{error.filename}: cannot be read: {error.strerror}.')


def _unseen_fault(path: str) -> Optional[str]:
    size, place, position = os.path.getsize(path), 0, 0
    with open(path, 'rb', buffering=0) as file:
        while place < size:
            fault = _fault_at(file, place)
            if fault:
                return f'record {position}: the file is damaged or cut short from here on: {fault}.'
            file.seek(place)
            place += FRAME_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), 'little')
            position += 1
    return None


def _fault_at(file: BinaryIO, place: int) -> Optional[str]:
    """What TensorFlow does not see of the record at a place, or the end of the file."""
    file.seek(place)
    head = file.read(_LENGTH_BYTES + 4)
    length = int.from_bytes(head[:_LENGTH_BYTES], 'little')
    if 0 < len(head) < _LENGTH_BYTES + 4:
        return f'the length of a record is cut short at byte {place:,}'
    # Of a length with another checksum, TensorFlow says so itself.
    if length >= _TOO_LONG and _masked_crc32c(head[:_LENGTH_BYTES]) == int.from_bytes(head[_LENGTH_BYTES:], 'little'):
        return f'the record says that it has {length:,} bytes'
    return None


def _masked_crc32c(content: bytes) -> int:
    """The checksum of a few bytes, as TFRecord files have it: RFC 3720, appendix B.4, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def serialized_in(path: str) -> Iterator[bytes]:
    """The records of a file, read by Python.

    Raises:
      tf.errors.OpError: the file cannot be read; a tf.errors.DataLossError: it is damaged from that record on.
    """
    place = 0
    with contextlib.ExitStack() as stack:
        # To ask a service for each length would take longer than to read the record.
        frames = stack.enter_context(open(path, 'rb', buffering=0)) if os.path.isfile(path) else None
        serialized = tf.compat.v1.io.tf_record_iterator(path)
        while True:
            fault = _fault_at(frames, place) if frames else None
            if fault:
                raise tf.errors.DataLossError(None, None, fault)
            record = next(serialized, None)
            if record is None:
                return
            place += FRAME_BYTES + len(record)
            yield record


def sizes_to_reach(paths: Sequence[str]) -> List[int]:
    """The sizes of files, in bytes, for `read_to_the_end`; 0 where that is not needed.

    Raises:
      RemoteError: a file is refused, or cannot be reached.
    """
    return sizes_of(paths) if remote.hides_refusals(paths[0]) else [0] * len(paths)


def sizes_of(paths: Sequence[str]) -> List[int]:
    """The sizes of files, in bytes.

    Raises:
      RemoteError: a file is refused, or cannot be reached.
    """
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return [*pool.map(remote.size, paths)]


def count_records(paths: Sequence[str]) -> List[int]:
    """The number of records in each file; only where they begin is read.

    Raises:
      DataError: a file cannot be read.
      RemoteError: one is refused, or cannot be reached.
    """
    return count_each(paths, _count)


def count_each(paths: Sequence[str], count: Callable[[str], int]) -> List[int]:
    """What `count` counts in each of several files, many at a time; what was counted before is remembered.

    Raises:
      DataError, RemoteError: as `count_records`.
    """

    def count_one(path: str) -> int:
        try:
            return _counted(count, path, remote.size(path))
        except (OSError, tf.errors.OpError) as error:
            raise DataError(f'{path}: cannot be read: {error}')

    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return [*pool.map(count_one, paths)]


@functools.lru_cache(maxsize=None)
def _counted(count: Callable[[str], int], path: str, size: int) -> int:
    """Of a file of that size: if it has another by now, it is another file."""
    return count(path)


def _count(path: str) -> int:
    size, place, count = remote.size(path), 0, 0
    # A local file takes Python a tenth of TensorFlow's time.
    opener = functools.partial(tf.io.gfile.GFile if remote.is_remote(path) else io.FileIO, path, 'rb')
    with remote.explained(path, remote.READ), opener() as file:
        # What is not whole counts, too: it is found and named when it is read.
        while place < size:
            file.seek(place)
            place += FRAME_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), 'little')
            count += 1
    return count


def reader(data_dir: str, buffer_size: int) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """What reads a file, given its path and, from `sizes_to_reach`, its size: its records, string scalars for `parse`.

    Args:
      data_dir: where the files are.
      buffer_size: bytes that are read ahead.
    """

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        lines = tf.data.TFRecordDataset(path, buffer_size=buffer_size)
        return read_to_the_end(lines, path, size) if remote.hides_refusals(data_dir) else lines

    return read


def read_to_the_end(serialized: tf.data.Dataset, path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """The records of a file, as they are; fails where they end before the file does.

    On s3://, what is refused half-way looks like the end, and a file that is refused like one without a record.

    Args:
      serialized: data set of the serialized records, string scalars.
      path: string scalar, the file.
      size: int64 scalar, its bytes.
    """
    end = tf.data.Dataset.from_tensors((True, ''))
    marked = serialized.map(lambda record: (False, record)).concatenate(end)

    def count(read: tf.Tensor, element: Tuple[tf.Tensor, tf.Tensor]) -> Tuple[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
        is_end, record = element
        whole = tf.logical_or(tf.logical_not(is_end), tf.equal(read, tf.cast(size, tf.int64)))
        with tf.control_dependencies([tf.Assert(whole, [path, remote.ENDED_EARLY, read, 'of', size])]):
            read += FRAME_BYTES + tf.cast(tf.strings.length(record), tf.int64)
        return read, (is_end, record)

    counted = marked.apply(tf.data.experimental.scan(tf.constant(0, tf.int64), count))
    return counted.filter(lambda is_end, record: tf.logical_not(is_end)).map(lambda is_end, record: record)


def passed_over(data_dir: str, split: str, paths: Sequence[str]) -> List[str]:
    """What is named almost like the files of a split, but not read: backups, compressed or unfinished copies."""
    names = {os.path.basename(path) for path in paths}
    return [n for n in sorted(remote.names_in(data_dir) or ()) if n.startswith(f'{split}-') and n not in names]


def missing_shards(data_dir: str, split: str, paths: Sequence[str]) -> List[str]:
    """The names of the record files that should stand beside those that were found, going by their names."""
    count = _shards_of(paths[0])
    expected = [os.path.basename(shard_path(data_dir, split, shard, count)) for shard in range(count)]
    return sorted(set(expected) - {os.path.basename(path) for path in paths})
