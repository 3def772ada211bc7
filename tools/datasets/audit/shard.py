"""The content and the problems of one file of a data set; several processes read files at the same time."""

import collections
import contextlib
import dataclasses
import signal
from typing import Any, Callable, Counter, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from compat import native_messages, tf
from compat.messages import shown
from data import record_checker, remote, tfrecord_files
from data.checks import checker
from data.record_checker import BadRecord
from data.records import DataError, irregular_kind
from data.tar.layout import IMAGE_EXTENSIONS, Problem, label_of
from data.tar.shard import Sample, Shard, size_problem
from data.tf_example import CORNERS, DOCUMENTED_FIELDS, Fields
from tools import image_header
from tools.datasets.fingerprints import SplitFingerprint
from tools.datasets.intake import damage_in
from tools.datasets.writing import digest

# The most problems of each kind that are listed; others are only counted.
LISTED_AT_MOST = 1000
# Stored in the shared number of records to stop all processes.
STOP = -1

# Records between two updates of the progress.
_PROGRESS_EVERY = 100

_NO_BOXES = np.zeros([0, 4], np.float32)
# The field name of a tar shard's images, whatever their extension.
_IMAGE = 'image'

# Stored for each image that has a label: 64 bits of its digest (two of 14 million images share them by chance with a
# probability of 1 in 180,000), its position in the file, its label, its size in pixels (0: unknown), its bytes.
IMAGE = np.dtype([('digest', 'u8'), ('position', 'i8'), ('label', 'i8'), ('size', 'i8', 2), ('bytes', 'i8')])


@dataclasses.dataclass
class FileContent:
    """The content of a file."""

    records: int = 0  # The number of readable records.
    # The number of records with each field.
    fields: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # The number of images of each kind; 'unknown' for those without a known header.
    formats: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # The counts of the images that have a label.
    fingerprint: SplitFingerprint = dataclasses.field(default_factory=SplitFingerprint)
    # The counts of `count_boxes`.
    boxes: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    images: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros([0], IMAGE))  # An array of `IMAGE`.
    # The number of problems of each kind.
    counts: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # The first problems of each kind, with their kinds.
    problems: List[Tuple[str, BadRecord]] = dataclasses.field(default_factory=list)

    def note(self, kind: str, place: BadRecord) -> None:
        """Adds a problem."""
        self.counts[kind] += 1
        if self.counts[kind] <= LISTED_AT_MOST:
            self.problems.append((kind, place))


class Entry(NamedTuple):
    """A record of a file, or a file of a shard that belongs to no record."""

    encoded: Optional[bytes] = None  # The image file's bytes; None if there are none.
    label: Optional[int] = None  # The label with its offset, valid or not; None if there is none.
    # float32 [boxes, 4], each ymin, xmin, ymax, xmax, not clipped; empty if they are invalid.
    boxes: np.ndarray = _NO_BOXES
    fields: Tuple[str, ...] = ()  # The names of its fields.
    # The kind of problem and the reason why its fields, or else its boxes, cannot be used. The image is not checked.
    problems: Tuple[Tuple[str, str], ...] = ()
    prefix: str = ''  # The prefix of messages about it.
    # The name of a file that belongs to no record; None for a record.
    left_out: Optional[str] = None


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raises DataError if a path is not a file, or the file cannot be read."""
    kind = irregular_kind(path)
    if kind:
        raise DataError(f'cannot be read: it is {kind}.')
    try:
        yield
    except (tf.errors.OpError, remote.RemoteError) as error:
        raise DataError(f'cannot be read: {getattr(error, "message", error)}')


def of_records(path: str, num_classes: int, fields: Fields = DOCUMENTED_FIELDS) -> Iterator[Entry]:
    """Yields the records of a TFRecord file, whose images and labels have these keys, and verifies their checksums."""
    count = 0
    with _readable(path):
        # On s3://, TensorFlow treats a file as empty if access to it is denied.
        remote.check_readable(path)
        try:
            with remote.explained(path, remote.READ):
                for serialized in tfrecord_files.serialized_in(path):
                    count += 1
                    yield _of_record(serialized, num_classes, fields)
        except tf.errors.DataLossError as error:
            from_here = 'the file is damaged or truncated from here on'
            problem = from_here if count else 'not a record file, or damaged at its beginning'
            raise DataError(f'{problem}: {error.message}.')


def _of_record(serialized: bytes, num_classes: int, fields: Fields) -> Entry:
    example = record_checker.parse_example(serialized)
    # Listed first: reading a missing field adds an empty one.
    keys = tuple(example.features.feature) if example else ()
    kind, problem = 'bad_fields', record_checker.field_problem(example, num_classes, fields)
    if example and not problem:
        kind, problem = 'bad_boxes', record_checker.box_problem(example)
    problems = ((kind, problem),) if problem else ()
    if example is None:
        return Entry(problems=problems)
    feature = example.features.feature
    encoded, label = feature[fields.image].bytes_list.value, feature[fields.label].int64_list.value
    corners = [feature[f'image/object/bbox/{corner}'].float_list.value for corner in CORNERS]
    return Entry(
        encoded=encoded[0] if len(encoded) == 1 and encoded[0] else None,
        label=label[0] + fields.label_offset if len(label) == 1 else None,
        boxes=_NO_BOXES if problem else np.array(corners, np.float32).T,
        fields=keys,
        problems=problems,
    )


def of_tar(path: str, num_classes: int, fields: Fields = DOCUMENTED_FIELDS) -> Iterator[Entry]:
    """Yields the samples of a tar shard, whose labels have the place and the offset of `fields`."""
    with _readable(path), Shard(path) as shard:
        problem = size_problem(path, shard.size)
        if problem:
            raise DataError(problem)
        for sample in shard.everything(label_of(fields.label)):
            if sample.problem is Problem.LEFT_OUT:
                yield from (Entry(left_out=shown(member.name)) for member in sample.members)
            elif sample.problem.is_last:
                raise DataError(sample.reason)
            else:
                yield _of_sample(shard, sample, num_classes, fields.label_offset)


def _of_sample(shard: Shard, sample: Sample, num_classes: int, offset: int) -> Entry:
    extensions = [member.extension for member in sample.members if member.key is not None]
    keys = tuple({_IMAGE if each in IMAGE_EXTENSIONS else shown(each) for each in extensions})
    if not sample.image:
        return Entry(fields=keys, problems=(('bad_fields', sample.description),), prefix=sample.prefix)
    encoded, label = shard.read(sample.image.start, sample.image.size), sample.label + offset
    problem = record_checker.label_problem(label, num_classes, offset)
    return Entry(encoded, label, _NO_BOXES, keys, (('bad_fields', problem),) if problem else (), sample.prefix)


# By the values of --data_format.
_ENTRIES: Dict[str, Callable[[str, int, Fields], Iterator[Entry]]] = {'tfrecord': of_records, 'tar': of_tar}


class ShardAuditor:
    """Audits files, one at a time.

    Labels must be lower than `num_classes`. `progress` is a number shared by the processes, incremented by the records
    that have been read.
    """

    def __init__(self, data_format: str, fields: Fields, num_classes: int, progress: Any):
        self._entries = _ENTRIES[data_format]
        self._fields = fields
        self._num_classes = num_classes
        self._progress = progress
        self._checker = checker(data_format, num_classes, False, fields)

    def audit(self, path: str) -> FileContent:
        """Reads one file; its problems are part of the result."""
        content = FileContent()
        images: List[tuple] = []
        try:
            for entry in self._entries(path, self._num_classes, self._fields):
                position = content.records
                if entry.left_out is not None:
                    content.note('left_out', BadRecord(path, position, f'{entry.left_out}.'))
                    continue
                content.records += 1
                if not content.records % _PROGRESS_EVERY:
                    self._advance(_PROGRESS_EVERY)
                content.fields.update(entry.fields)
                content.boxes.update(count_boxes(entry.boxes))
                header = image_header.read_header(entry.encoded) if entry.encoded is not None else None
                for kind, problem in self._problems(entry):
                    content.note(kind, BadRecord(path, position, f'{entry.prefix}{problem}'))
                if entry.encoded is None:
                    continue
                content.formats[header.kind if header else 'unknown'] += 1
                if entry.label is not None:
                    content.fingerprint = content.fingerprint.with_image(entry.label, entry.encoded)
                    key = int.from_bytes(digest(entry.encoded)[:8], 'big')
                    size = (header.width, header.height) if header else (0, 0)
                    images.append((key, position, entry.label, size, len(entry.encoded)))
        except DataError as error:
            content.note('bad_files', BadRecord(path, content.records, str(error)))
        self._advance(content.records % _PROGRESS_EVERY)
        content.images = np.array(images, IMAGE)
        return content

    def _problems(self, entry: Entry) -> Iterator[Tuple[str, str]]:
        yield from entry.problems
        if entry.encoded is None:
            return
        encoded: bytes = entry.encoded
        orientation = image_header.orientation(encoded)
        if orientation != image_header.UPRIGHT:
            yield 'rotated', f'EXIF orientation {orientation}.'
        problem, messages = native_messages.during(lambda: self._checker.image_problem(encoded))
        damage = damage_in(messages)
        if problem:
            yield 'undecodable', problem
        elif damage:
            yield 'damaged', damage

    def _advance(self, count: int) -> None:
        with self._progress.get_lock():
            if self._progress.value == STOP:
                raise InterruptedError
            self._progress.value += count


def count_boxes(boxes: np.ndarray) -> Dict[str, int]:
    """The number of boxes, [boxes, 4], each ymin, xmin, ymax, xmax in fractions of the image.

    'outside': boxes that extend beyond the image's edge, or have no area inside the image.
    """
    clipped = np.clip(boxes, 0.0, 1.0)
    outside = (clipped != boxes).any(axis=1) | (clipped[:, :2] >= clipped[:, 2:]).any(axis=1)
    return {'boxes': len(boxes), 'outside': int(outside.sum())}


# Contexts of a worker process.
_until_the_end = contextlib.ExitStack()
# The auditor of a worker process.
_auditor: Optional[ShardAuditor] = None


def start_process(data_format: str, fields: Fields, num_classes: int, progress: Any) -> None:
    """Prepares a worker process for `audit_in_process`; the arguments are those of `ShardAuditor`."""
    global _auditor
    # Ctrl-C also interrupts the parent process, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # TensorFlow and libjpeg report every damaged image on standard error, without its name.
    _until_the_end.enter_context(native_messages.captured())
    _auditor = ShardAuditor(data_format, fields, num_classes, progress)


def audit_in_process(path: str) -> FileContent:
    """Audits a file in a worker process that `start_process` has prepared."""
    assert _auditor is not None
    return _auditor.audit(path)
