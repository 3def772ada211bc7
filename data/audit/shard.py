"""What is in one file of a data set: the part of the audit that many processes do at the same time."""

import collections
import os
import signal
from typing import Any, Counter, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from console.messages import shown
from data import record_checker, records
from data.fingerprint import SplitFingerprint
from data.formats import FORMATS
from data.image_header import ImageHeader, read_header
from data.split import digest
from preprocessing.decoding import decode_image

# Bad records that are named in full; the rest are counted.
LISTED_AT_MOST = 1000
# The format of what has no header.
UNKNOWN = 'unknown'
# In place of a number of records: no more are to be read.
STOP = -1

# A corner beyond this is no fraction of the image that was rounded badly, but a number of pixels.
_PIXELS_FROM = 2.0
# Records between two reports of progress.
_PROGRESS_EVERY = 100

# What is kept of each image that has a label: 64 bits of its digest (that two of 14 million images share them by chance
# is one case in 180,000), its position in the file, its label, its size in pixels (0: unknown), its bytes.
IMAGE = np.dtype([('digest', 'u8'), ('position', 'i8'), ('label', 'i8'), ('size', 'i8', 2), ('bytes', 'i8')])


class BoxCounts(NamedTuple):
    """Bounding boxes; each of the bad ones is counted once, for the first that is wrong with it.

    Attributes:
      boxes: how many there are.
      in_pixels: have corners far outside the image: they are no fractions of it.
      empty: have no area inside the image.
      out_of_range: reach over the image's edge, where they are cut off.
    """

    boxes: int = 0
    in_pixels: int = 0
    empty: int = 0
    out_of_range: int = 0

    def __add__(self, other: tuple) -> 'BoxCounts':
        return BoxCounts(*(mine + others for mine, others in zip(self, other)))


class Listed(NamedTuple):
    """Records that have something in common: how many, and the first of them."""

    total: int = 0
    first: Tuple[record_checker.BadRecord, ...] = ()

    def __add__(self, other: tuple) -> 'Listed':
        total, first = other
        return Listed(self.total + total, (self.first + first)[:LISTED_AT_MOST])


class ShardAudit(NamedTuple):
    """What is in one file, or in several: those of the parts, summed in their order, are the whole's.

    Attributes:
      records: how many records could be read.
      fields: how many of them have each field.
      formats: how many images there are of each kind.
      fingerprint: of the images that have a label.
      images: the same, an array of `IMAGE` for each file.
      boxes: counts of bounding boxes.
      bad_fields: records that training cannot use because of their fields, other than boxes.
      bad_boxes: records that training cannot use because of their boxes, if it is to use these.
      undecodable: records whose image cannot be decoded.
      contradictions: records that say something else of their image than its header; they can be used.
      bad_files: files that cannot be read to their end, and from which record on.
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
    contradictions: Listed
    bad_files: Listed

    def __add__(self, other: tuple) -> 'ShardAudit':
        return ShardAudit(*(mine + others for mine, others in zip(self, other)))


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
    contradictions=Listed(),
    bad_files=Listed(),
)


class ShardAuditor:
    """Reads files and counts what is in them.

    Args:
      data_format: of `data.formats.FORMATS`.
      num_classes: labels must be below it.
      decode: decode every image, and not only those whose header or end is not as it should be.
      progress: a shared number, to which the records that have been read are added.
    """

    def __init__(self, data_format: str, num_classes: int, decode: bool, progress: Any):
        self._entries = FORMATS[data_format].entries
        self._num_classes = num_classes
        self._decode = decode
        self._progress = progress
        self._checker = FORMATS[data_format].checker(num_classes, decode_image, False)

    def audit(self, path: str) -> ShardAudit:
        """Reads one file; what is wrong with it is part of the result."""
        fields: Counter[str] = collections.Counter()
        formats: Counter[str] = collections.Counter()
        images: List[tuple] = []
        boxes, fingerprint = BoxCounts(), SplitFingerprint()
        bad_fields: List[record_checker.BadRecord] = []
        bad_boxes: List[record_checker.BadRecord] = []
        undecodable: List[record_checker.BadRecord] = []
        contradictions: List[record_checker.BadRecord] = []
        bad_files: List[record_checker.BadRecord] = []
        reached = 0
        try:
            for entry in self._entries(path, self._num_classes):
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
                problem = None
                if self._decode or header is None or not header.sound:
                    problem = self._checker.image_problem(entry.encoded)
                if problem:
                    undecodable.append(entry.bad_record(path, problem))
                elif header:
                    contradiction = contradiction_of(entry.said, header)
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
            *(_listed(found) for found in (bad_fields, bad_boxes, undecodable, contradictions, bad_files)),
        )

    def _advance(self, count: int) -> None:
        with self._progress.get_lock():
            if self._progress.value == STOP:
                raise InterruptedError
            self._progress.value += count


def _listed(found: List[record_checker.BadRecord]) -> Listed:
    return Listed(len(found), tuple(found[:LISTED_AT_MOST]))


def contradiction_of(said: Dict[str, Union[int, str]], header: ImageHeader) -> Optional[str]:
    """What a record says otherwise than its image; None if the two agree, or it says nothing."""
    size = said.get('width', header.width), said.get('height', header.height)
    if size != (header.width, header.height):
        return f'it says {size[0]} x {size[1]} pixels; the image has {header.width} x {header.height}.'
    named = str(said.get('format', header.format))
    if named.upper().replace('JPG', 'JPEG') != header.format:
        return f'it says {shown(repr(named))}; the image is a {header.format}.'
    return None


def count_boxes(boxes: np.ndarray) -> BoxCounts:
    """Counts boxes, float [boxes, 4], each ymin, xmin, ymax, xmax, and the bad ones among them."""
    if not len(boxes):
        return BoxCounts()
    in_pixels = (np.abs(boxes) > _PIXELS_FROM).any(axis=1)
    clipped = np.clip(boxes, 0.0, 1.0)
    empty = (clipped[:, :2] >= clipped[:, 2:]).any(axis=1) & ~in_pixels
    out_of_range = (clipped != boxes).any(axis=1) & ~in_pixels & ~empty
    return BoxCounts(len(boxes), int(in_pixels.sum()), int(empty.sum()), int(out_of_range.sum()))


# The auditor of a process that does nothing else.
_auditor: Optional[ShardAuditor] = None


def start_process(data_format: str, num_classes: int, decode: bool, progress: Any) -> None:
    """Makes a process ready for `audit_in_process`; the arguments are `ShardAuditor`'s."""
    global _auditor
    # The process that started this one is interrupted, too, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # TensorFlow and libjpeg write there of every broken image, and could not say which.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _auditor = ShardAuditor(data_format, num_classes, decode, progress)


def audit_in_process(path: str) -> ShardAudit:
    """Audits a file in a process that `start_process` has made ready."""
    assert _auditor is not None
    return _auditor.audit(path)
