"""The content and the problems of one file of a data set; several processes read files at the same time."""

import collections
import contextlib
import dataclasses
import signal
from typing import Any, Counter, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from console import native_messages
from console.messages import shown
from data import exif, records
from data.checks import checker
from data.convert.intake import damage_in
from data.convert.split import digest
from data.entries import ENTRIES, Entry
from data.fingerprint import SplitFingerprint
from data.image_header import ImageHeader, read_header
from data.record_checker import BadRecord
from data.tf_example import Fields

# The largest number of problems of each kind that are listed; the others are only counted.
LISTED_AT_MOST = 1000
# Stored in the shared number of records to stop all processes.
STOP = -1

# A coordinate above this is a number of pixels, not an imprecise fraction of the image.
_PIXELS_FROM = 2.0
# Records between two updates of the progress.
_PROGRESS_EVERY = 100

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
    # Of the images that have a label.
    fingerprint: SplitFingerprint = dataclasses.field(default_factory=SplitFingerprint)
    # The number of all bounding boxes, and of bad ones by `BOX_KINDS`.
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


class ShardAuditor:
    """Audits files, one at a time.

    Labels must be lower than `num_classes`. Without `decode`, only images with an unusual header or without an end are
    decoded. `progress` is a number shared by the processes, incremented by the records that have been read.
    """

    def __init__(self, data_format: str, fields: Fields, num_classes: int, decode: bool, progress: Any):
        self._entries = ENTRIES[data_format]
        self._fields = fields
        self._num_classes = num_classes
        self._decode = decode
        self._progress = progress
        self._checker = checker(data_format, num_classes, False, fields)

    def audit(self, path: str) -> FileContent:
        """Reads one file; its problems are part of the result."""
        content = FileContent()
        images: List[tuple] = []
        try:
            for entry in self._entries(path, self._num_classes, self._fields):
                if entry.left_out is not None:
                    content.note('left_out', entry.bad_record(path, f'{entry.left_out}.'))
                    continue
                content.records += 1
                if not content.records % _PROGRESS_EVERY:
                    self._advance(_PROGRESS_EVERY)
                content.fields.update(entry.fields)
                content.boxes.update(count_boxes(entry.boxes))
                header = read_header(entry.encoded) if entry.encoded is not None else None
                for kind, problem in self._problems(entry, header):
                    content.note(kind, entry.bad_record(path, problem))
                if entry.encoded is None:
                    continue
                content.formats[header.kind if header else 'unknown'] += 1
                if entry.label is not None:
                    content.fingerprint = content.fingerprint.with_image(entry.label, entry.encoded)
                    key = int.from_bytes(digest(entry.encoded)[:8], 'big')
                    size = (header.width, header.height) if header else (0, 0)
                    images.append((key, entry.position, entry.label, size, len(entry.encoded)))
        except records.DataError as error:
            content.note('bad_files', BadRecord(path, content.records, str(error)))
        self._advance(content.records % _PROGRESS_EVERY)
        content.images = np.array(images, IMAGE)
        return content

    def _problems(self, entry: Entry, header: Optional[ImageHeader]) -> Iterator[Tuple[str, str]]:
        if entry.problem:
            yield 'bad_fields', entry.problem
        if entry.box_problem:
            yield 'bad_boxes', entry.box_problem
        if entry.encoded is None:
            return
        encoded: bytes = entry.encoded
        orientation = exif.orientation(encoded)
        if orientation != exif.UPRIGHT:
            yield 'rotated', f'EXIF orientation {orientation}.'
        if self._decode or header is None or not header.sound:
            problem, messages = native_messages.during(lambda: self._checker.image_problem(encoded))
            if problem:
                yield 'undecodable', problem
                return
            damage = damage_in(messages)
            if damage:
                yield 'damaged', damage
        contradiction = contradiction_of(entry.claimed, header) if header else None
        if contradiction:
            yield 'contradictions', contradiction

    def _advance(self, count: int) -> None:
        with self._progress.get_lock():
            if self._progress.value == STOP:
                raise InterruptedError
            self._progress.value += count


def contradiction_of(claimed: Mapping[str, Union[int, str]], header: ImageHeader) -> Optional[str]:
    """The first contradiction between a record's claims and its image's header, in words; None if there is none."""
    size = claimed.get('width', header.width), claimed.get('height', header.height)
    if size != (header.width, header.height):
        return f'its fields say {size[0]} x {size[1]} pixels; the image has {header.width} x {header.height}.'
    named = str(claimed.get('format', header.format))
    if named.upper().replace('JPG', 'JPEG') != header.format:
        return f'its fields say {shown(repr(named))}; the image is a {header.format}.'
    return None


def count_boxes(boxes: np.ndarray) -> Dict[str, int]:
    """The number of boxes, [boxes, 4], each ymin, xmin, ymax, xmax; and of bad ones, each for its first problem.

    'in_pixels': those with coordinates that are pixels instead of fractions of the image; 'empty': those without area
    inside the image; 'out_of_range': those that extend beyond the image's edge, and are clipped.
    """
    if not len(boxes):
        return {}
    in_pixels = (np.abs(boxes) > _PIXELS_FROM).any(axis=1)
    clipped = np.clip(boxes, 0.0, 1.0)
    empty = (clipped[:, :2] >= clipped[:, 2:]).any(axis=1) & ~in_pixels
    out_of_range = (clipped != boxes).any(axis=1) & ~in_pixels & ~empty
    counts = {'in_pixels': in_pixels, 'empty': empty, 'out_of_range': out_of_range}
    return {'boxes': len(boxes), **{kind: int(which.sum()) for kind, which in counts.items()}}


# Contexts of a worker process.
_until_the_end = contextlib.ExitStack()
# The auditor of a worker process.
_auditor: Optional[ShardAuditor] = None


def start_process(data_format: str, fields: Fields, num_classes: int, decode: bool, progress: Any) -> None:
    """Prepares a worker process for `audit_in_process`; the arguments are those of `ShardAuditor`."""
    global _auditor
    # Ctrl-C also interrupts the parent process, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # TensorFlow and libjpeg report every damaged image on standard error, without its name.
    _until_the_end.enter_context(native_messages.captured())
    _auditor = ShardAuditor(data_format, fields, num_classes, decode, progress)


def audit_in_process(path: str) -> FileContent:
    """Audits a file in a worker process that `start_process` has prepared."""
    assert _auditor is not None
    return _auditor.audit(path)
