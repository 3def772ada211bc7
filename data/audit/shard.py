"""The audit of one file of a data set, which runs in several processes at the same time."""

import collections
import contextlib
import signal
from typing import Any, Counter, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from console import native_messages
from console.messages import shown
from data import exif, record_checker, records
from data.checks import CHECKERS
from data.convert.intake import damage_in
from data.convert.split import digest
from data.entries import ENTRIES
from data.fingerprint import SplitFingerprint
from data.image_header import ImageHeader, read_header
from data.tf_example import Fields
from preprocessing.decoding import decode_image

# The largest number of bad records listed for each kind of problem; the others are only counted.
LISTED_AT_MOST = 1000
# The format of an image without a known header.
UNKNOWN = 'unknown'
# Stored in the shared number of records to stop all processes.
STOP = -1

# A coordinate above this is a number of pixels, not an imprecise fraction of the image.
_PIXELS_FROM = 2.0
# Records between two updates of the progress.
_PROGRESS_EVERY = 100

# Stored for each image that has a label: 64 bits of its digest (two of 14 million images share them by chance with a
# probability of 1 in 180,000), its position in the file, its label, its size in pixels (0: unknown), its bytes.
IMAGE = np.dtype([('digest', 'u8'), ('position', 'i8'), ('label', 'i8'), ('size', 'i8', 2), ('bytes', 'i8')])


class BoxCounts(NamedTuple):
    """Numbers of bounding boxes. A bad box counts once, for its first problem.

    Attributes:
      boxes: all boxes.
      in_pixels: boxes with coordinates that are pixels instead of fractions of the image.
      empty: boxes without area inside the image.
      out_of_range: boxes that extend beyond the image's edge, and are clipped there.
    """

    boxes: int = 0
    in_pixels: int = 0
    empty: int = 0
    out_of_range: int = 0

    def __add__(self, other: tuple) -> 'BoxCounts':
        return BoxCounts(*(own + added for own, added in zip(self, other)))


class Listed(NamedTuple):
    """Records with a problem of one kind: their number, and the first of them."""

    total: int = 0
    first: Tuple[record_checker.BadRecord, ...] = ()

    def __add__(self, other: tuple) -> 'Listed':
        total, first = other
        return Listed(self.total + total, (self.first + first)[:LISTED_AT_MOST])


class ShardAudit(NamedTuple):
    """The content of one file or several. The sum over files, in their order, is the content of all.

    Attributes:
      records: the number of readable records.
      fields: the number of records with each field.
      formats: the number of images of each kind.
      fingerprint: of the images that have a label.
      images: these images, an array of `IMAGE` for each file.
      boxes: numbers of bounding boxes.
      bad_fields: records that training cannot use because of a field other than the boxes.
      bad_boxes: records that training with boxes cannot use because of their boxes.
      undecodable: records whose image cannot be decoded.
      damaged: records whose image can be decoded, but with missing or wrong pixels; only if every image is decoded.
      rotated: records whose image has an EXIF orientation other than upright, which training ignores.
      contradictions: usable records whose fields contradict their image's header.
      bad_files: files that cannot be read to their end, each with the position of its first unreadable record.
      left_out: files in tar shards that belong to no sample, each with the position of the next sample.
    """

    records: int
    fields: Counter[str]
    formats: Counter[str]
    fingerprint: SplitFingerprint
    images: Tuple[np.ndarray, ...]
    boxes: BoxCounts
    bad_fields: Listed
    bad_boxes: Listed
    undecodable: Listed
    damaged: Listed
    rotated: Listed
    contradictions: Listed
    bad_files: Listed
    left_out: Listed

    def __add__(self, other: tuple) -> 'ShardAudit':
        return ShardAudit(*(own + added for own, added in zip(self, other)))


NOTHING = ShardAudit(
    records=0,
    fields=collections.Counter(),
    formats=collections.Counter(),
    fingerprint=SplitFingerprint(),
    images=(),
    boxes=BoxCounts(),
    bad_fields=Listed(),
    bad_boxes=Listed(),
    undecodable=Listed(),
    damaged=Listed(),
    rotated=Listed(),
    contradictions=Listed(),
    bad_files=Listed(),
    left_out=Listed(),
)


class ShardAuditor:
    """Audits files, one at a time.

    Args:
      data_format: the format of the files, of `data.formats.FORMATS`.
      fields: of the records.
      num_classes: the number of classes; labels must be lower.
      decode: decode every image, instead of only those with an unusual header or without an end.
      progress: a number shared by the processes, incremented by the records that have been read.
    """

    def __init__(self, data_format: str, fields: Fields, num_classes: int, decode: bool, progress: Any):
        self._entries = ENTRIES[data_format]
        self._fields = fields
        self._num_classes = num_classes
        self._decode = decode
        self._progress = progress
        self._checker = CHECKERS[data_format](num_classes, decode_image, False, fields)

    def audit(self, path: str) -> ShardAudit:
        """Reads one file; its problems are part of the result."""
        fields: Counter[str] = collections.Counter()
        formats: Counter[str] = collections.Counter()
        images: List[tuple] = []
        boxes, fingerprint = BoxCounts(), SplitFingerprint()
        bad_fields: List[record_checker.BadRecord] = []
        bad_boxes: List[record_checker.BadRecord] = []
        undecodable: List[record_checker.BadRecord] = []
        damaged: List[record_checker.BadRecord] = []
        rotated: List[record_checker.BadRecord] = []
        contradictions: List[record_checker.BadRecord] = []
        bad_files: List[record_checker.BadRecord] = []
        left_out: List[record_checker.BadRecord] = []
        reached = 0
        try:
            for entry in self._entries(path, self._num_classes, self._fields):
                if entry.left_out is not None:
                    left_out.append(entry.bad_record(path, f'{entry.left_out}.'))
                    continue
                reached += 1
                if not reached % _PROGRESS_EVERY:
                    self._advance(_PROGRESS_EVERY)
                fields.update(entry.fields)
                boxes += count_boxes(entry.boxes)
                if entry.problem:
                    bad_fields.append(entry.bad_record(path, entry.problem))
                if entry.box_problem:
                    bad_boxes.append(entry.bad_record(path, entry.box_problem))
                if entry.encoded is None:
                    continue
                header = read_header(entry.encoded)
                formats[header.kind if header else UNKNOWN] += 1
                problem, damage = self._problem_and_damage(entry.encoded, header)
                if damage:
                    damaged.append(entry.bad_record(path, damage))
                orientation = exif.orientation(entry.encoded)
                if orientation != exif.UPRIGHT:
                    rotated.append(entry.bad_record(path, f'EXIF orientation {orientation}.'))
                if problem:
                    undecodable.append(entry.bad_record(path, problem))
                elif header:
                    contradiction = contradiction_of(entry.claimed, header)
                    if contradiction:
                        contradictions.append(entry.bad_record(path, contradiction))
                if entry.label is not None:
                    fingerprint = fingerprint.with_image(entry.label, entry.encoded)
                    key = int.from_bytes(digest(entry.encoded)[:8], 'big')
                    size = (header.width, header.height) if header else (0, 0)
                    images.append((key, entry.position, entry.label, size, len(entry.encoded)))
        except records.DataError as error:
            bad_files.append(record_checker.BadRecord(path, reached, str(error)))
        self._advance(reached % _PROGRESS_EVERY)
        return ShardAudit(
            reached,
            fields,
            formats,
            fingerprint,
            (np.array(images, IMAGE),),
            boxes,
            *(
                _listed(found)
                for found in (bad_fields, bad_boxes, undecodable, damaged, rotated, contradictions, bad_files, left_out)
            ),
        )

    def _problem_and_damage(self, encoded: bytes, header: Optional[ImageHeader]) -> Tuple[Optional[str], Optional[str]]:
        """The reason why an image cannot be decoded, and the damage of one that can; None for neither."""
        if not self._decode and header is not None and header.sound:
            return None, None
        problem, messages = native_messages.during(lambda: self._checker.image_problem(encoded))
        return problem, None if problem else damage_in(messages)

    def _advance(self, count: int) -> None:
        with self._progress.get_lock():
            if self._progress.value == STOP:
                raise InterruptedError
            self._progress.value += count


def _listed(found: List[record_checker.BadRecord]) -> Listed:
    return Listed(len(found), tuple(found[:LISTED_AT_MOST]))


def contradiction_of(claimed: Dict[str, Union[int, str]], header: ImageHeader) -> Optional[str]:
    """The first contradiction between a record's claims and its image's header, in words; None if there is none."""
    size = claimed.get('width', header.width), claimed.get('height', header.height)
    if size != (header.width, header.height):
        return f'its fields say {size[0]} x {size[1]} pixels; the image has {header.width} x {header.height}.'
    named = str(claimed.get('format', header.format))
    if named.upper().replace('JPG', 'JPEG') != header.format:
        return f'its fields say {shown(repr(named))}; the image is a {header.format}.'
    return None


def count_boxes(boxes: np.ndarray) -> BoxCounts:
    """Counts boxes and the bad ones among them; `boxes`: float [boxes, 4], each ymin, xmin, ymax, xmax."""
    if not len(boxes):
        return BoxCounts()
    in_pixels = (np.abs(boxes) > _PIXELS_FROM).any(axis=1)
    clipped = np.clip(boxes, 0.0, 1.0)
    empty = (clipped[:, :2] >= clipped[:, 2:]).any(axis=1) & ~in_pixels
    out_of_range = (clipped != boxes).any(axis=1) & ~in_pixels & ~empty
    return BoxCounts(len(boxes), int(in_pixels.sum()), int(empty.sum()), int(out_of_range.sum()))


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


def audit_in_process(path: str) -> ShardAudit:
    """Audits a file in a worker process that `start_process` has prepared."""
    assert _auditor is not None
    return _auditor.audit(path)
