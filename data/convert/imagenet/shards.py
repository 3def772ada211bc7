"""Converts the planned images of a shard to a record file, in the processes of Beam."""

import contextlib
import functools
import json
import os
import uuid
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from console import native_messages, outputs
from console.errors import CommandError
from console.json_content import from_json
from console.messages import shown
from console.tensorflow_versions import tf
from data import encoding, exif, remote
from data.convert.imagenet import source as imagenet_source
from data.convert.imagenet.source import Image
from data.convert.intake import DAMAGED, ROTATED, damage_in
from data.encoding import Box
from data.files import write_whole
from data.fingerprint import SplitFingerprint
from data.records import DataError
from preprocessing.decoding import decode_image

REPORT_ENDING = '.report'
_FAILURE_NAME = 'failure'

# The quality of re-encoded images, as in the published conversion.
_QUALITY = 100
_JPEG_START = b'\xff\xd8\xff'
_OTHER_STARTS = {b'\x89PNG': 'PNG', b'GIF8': 'GIF'}


class PlannedImage(NamedTuple):
    """An image and the other fields of its record.

    Attributes:
      image: its location.
      label: its class, from 1 on.
      text: the name of its class.
      boxes: its bounding boxes.
    """

    image: Image
    label: int
    text: str
    boxes: List[Box]


class ShardReport(NamedTuple):
    """The result of converting a shard.

    Attributes:
      file_bytes: the size of the record file.
      fingerprint: of its images and labels.
      converted: the names of re-encoded images, by their original kind: 'CMYK' (or YCCK), 'PNG' or 'GIF'.
      unreadable: the names of the images that cannot be decoded, and were left out.
      notes: the names of images that are kept with damaged pixels or an EXIF orientation, by `DAMAGED` or `ROTATED`.
    """

    file_bytes: int
    fingerprint: SplitFingerprint
    converted: Dict[str, List[str]]
    unreadable: List[str]
    notes: Dict[str, List[str]]


def write_plan(work_dir: str, shard: str, images: List[PlannedImage]) -> None:
    """Stores the images of a shard for `convert`."""
    write_json(os.path.join(work_dir, f'{shard}.plan'), images)


def _read_plan(work_dir: str, shard: str) -> List[PlannedImage]:
    path = os.path.join(work_dir, f'{shard}.plan')

    def images(rows: Any) -> List[PlannedImage]:
        return [
            PlannedImage(Image(*image), label, text, [Box(*box) for box in boxes]) for image, label, text, boxes in rows
        ]

    try:
        return from_json(imagenet_source.read_file(path), images)
    except ValueError as error:
        raise DataError(f'{path}: is damaged: {shown(error)}. Name a new folder.')


def report_path(work_dir: str, shard: str) -> str:
    """The path of the report on a finished shard."""
    return os.path.join(work_dir, shard + REPORT_ENDING)


def read_report(work_dir: str, shard: str) -> Optional[ShardReport]:
    """The report on a shard; None if the shard is not finished, or the report is damaged."""
    content = remote.read(report_path(work_dir, shard))
    if content is None:
        return None

    def report(values: Any) -> ShardReport:
        file_bytes, (images, total), converted, unreadable, notes = values
        return ShardReport(file_bytes, SplitFingerprint(images, int(total, 16)), converted, unreadable, notes)

    try:
        return from_json(content, report)
    except ValueError:
        return None


def forget(work_dir: str, shards: Iterable[str]) -> None:
    """Removes the reports on shards, and the message of a failed conversion."""
    names = set(remote.names_in(work_dir) or ())
    for name in names & {_FAILURE_NAME, *(shard + REPORT_ENDING for shard in shards)}:
        tf.io.gfile.remove(os.path.join(work_dir, name))


def raise_failure(work_dir: str) -> None:
    """Raises the error of a failed conversion, if there is one.

    Raises:
      DataError: an image no longer existed, or a file could not be written.
      UnreachableError: the store of a remote file could not be reached.
    """
    content = remote.read(os.path.join(work_dir, _FAILURE_NAME))
    if content:
        try:
            is_transient, message = from_json(content, lambda values: (bool(values[0]), str(values[1])))
        except ValueError:
            is_transient, message = False, shown(content)
        raise (remote.UnreachableError if is_transient else DataError)(message)


def convert(shard: str, data_dir: str, work_dir: str) -> None:
    """Writes a record file and its report. The file gets its final name only when both are complete.

    The first failure is stored for `raise_failure`, and ends the conversion, because Beam would show a traceback for
    each failure.

    Args:
      shard: the file's name.
      data_dir: the folder of the record files.
      work_dir: the folder of the plan and the report.
    """
    failure = os.path.join(work_dir, _FAILURE_NAME)
    if tf.io.gfile.exists(failure):
        return
    # A unique name: a process presumed dead, or a cluster's backup of a slow one, may convert the same shard.
    unfinished = os.path.join(work_dir, f'{shard}.{uuid.uuid4().hex}.unfinished')
    try:
        report = _write_records(unfinished, _read_plan(work_dir, shard))
        images, total = report.fingerprint
        write_json(report_path(work_dir, shard), [report.file_bytes, [images, f'{total:064x}'], *report[2:]])
        with remote.explained(data_dir, remote.WRITE):
            outputs.move(unfinished, os.path.join(data_dir, shard))
    except (CommandError, tf.errors.OpError) as error:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(unfinished)
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        write_json(failure, [isinstance(error, remote.UnreachableError), f'{shard} was not written: {message}'])


def _write_records(path: str, images: Iterable[PlannedImage]) -> ShardReport:
    fingerprint = SplitFingerprint()
    converted: Dict[str, List[str]] = {}
    unreadable: List[str] = []
    notes: Dict[str, List[str]] = {}
    with remote.explained(path, remote.WRITE), tf.io.TFRecordWriter(path) as writer:
        for image, label, text, boxes in images:
            try:
                content = imagenet_source.read(image)
                (encoded, height, width, original), messages = native_messages.during(
                    functools.partial(_codec().as_rgb_jpeg, content)
                )
            except tf.errors.InvalidArgumentError:
                unreadable.append(image.path if image.size is None else f'{image.filename} in {image.path}')
                continue
            if original != 'JPEG':
                converted.setdefault(original, []).append(image.filename)
            if damage_in(messages):
                notes.setdefault(DAMAGED, []).append(image.filename)
            if exif.orientation(content) != exif.UPRIGHT:
                notes.setdefault(ROTATED, []).append(image.filename)
            example = encoding.make_example(
                encoded, 'JPEG', label, text, height, width, image.filename, image.synset, boxes
            )
            # Otherwise the order of an Example's fields is random, and the same data gives different files.
            writer.write(example.SerializeToString(deterministic=True))
            fingerprint = fingerprint.with_image(label, encoded)
    return ShardReport(remote.size(path), fingerprint, converted, unreadable, notes)


def write_json(path: str, value: object) -> None:
    """Writes a JSON file atomically."""
    write_whole(path, json.dumps(value))


@functools.lru_cache(maxsize=None)
def _codec() -> '_Codec':
    """The codec of the process, with one session for all shards."""
    return _Codec()


class _Codec:
    """Checks that images can be decoded, and converts images that are not RGB or grey JPEG files to RGB JPEG files."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._encoded = tf.placeholder(tf.string, [])
            pixels = decode_image(self._encoded)
            self._shape = tf.shape(pixels)
            self._components = tf.image.extract_jpeg_shape(self._encoded)[2]
            self._jpeg = tf.image.encode_jpeg(pixels, format='rgb', quality=_QUALITY)
        # One thread: there is a process per core.
        config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        self._session = tf.Session(graph=graph, config=config)

    def as_rgb_jpeg(self, encoded: bytes) -> Tuple[bytes, int, int, str]:
        """A JPEG file of the image, its height and width, and the original kind; 'JPEG' if the file is unchanged.

        Raises:
          tf.errors.InvalidArgumentError: the image cannot be decoded.
        """
        feed = {self._encoded: encoded}
        kind = 'JPEG'
        if not encoded.startswith(_JPEG_START):
            kind = next((name for start, name in _OTHER_STARTS.items() if encoded.startswith(start)), 'unknown')
        elif self._session.run(self._components, feed) == 4:
            kind = 'CMYK'
        if kind == 'JPEG':
            height, width, _ = self._session.run(self._shape, feed)
        else:
            (height, width, _), encoded = self._session.run([self._shape, self._jpeg], feed)
        return encoded, int(height), int(width), kind
