"""Writes one record file of ImageNet, in a process of Beam."""

import contextlib
import functools
import json
import os
import uuid
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

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
FAILURE_NAME = 'failure'

# The quality of re-encoded images, as in the published conversion.
_QUALITY = 100
_KINDS = {b'\xff\xd8\xff': 'JPEG', b'\x89PNG': 'PNG', b'GIF8': 'GIF'}


class PlannedImage(NamedTuple):
    """An image and the other fields of its record: its class, from 1 on, the class's name, and its bounding boxes."""

    image: Image
    label: int
    text: str
    boxes: List[Box]


class ShardReport(NamedTuple):
    """The result of writing a record file.

    Attributes:
      file_bytes: the size of the file.
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
    """Stores the images of a record file for `convert`."""
    write_whole(os.path.join(work_dir, f'{shard}.plan'), json.dumps(images))


def read_plan(work_dir: str, shard: str) -> List[PlannedImage]:
    """The images of a record file."""
    path = os.path.join(work_dir, f'{shard}.plan')
    try:
        return from_json(
            imagenet_source.read_file(path),
            lambda rows: [
                PlannedImage(Image(*image), label, text, [Box(*box) for box in boxes])
                for image, label, text, boxes in rows
            ],
        )
    except ValueError as error:
        raise DataError(f'{path}: is damaged: {shown(error)}. Name a new folder.')


def read_report(work_dir: str, shard: str) -> Optional[ShardReport]:
    """The report on a record file; None if the file is not finished, or the report is damaged."""

    def report(values: Any) -> ShardReport:
        file_bytes, (images, total), converted, unreadable, notes = values
        return ShardReport(file_bytes, SplitFingerprint(images, int(total, 16)), converted, unreadable, notes)

    content = remote.read(os.path.join(work_dir, shard + REPORT_ENDING))
    try:
        return None if content is None else from_json(content, report)
    except ValueError:
        return None


def convert(shard: str, data_dir: str, work_dir: str) -> None:
    """Writes a record file and its report. The file gets its final name only when both are complete.

    Beam would show a traceback for each failure. Therefore, the first one is stored in `FAILURE_NAME`, as a JSON list
    of whether it is transient and a message, and ends the conversion.

    Args:
      shard: the file's name.
      data_dir: the folder of the record files.
      work_dir: the folder of the plan and the report.
    """
    failure = os.path.join(work_dir, FAILURE_NAME)
    if tf.io.gfile.exists(failure):
        return
    # A unique name: a process presumed dead, or a cluster's backup of a slow one, may convert the same shard.
    unfinished = os.path.join(work_dir, f'{shard}.{uuid.uuid4().hex}.unfinished')
    try:
        report = _write_records(unfinished, read_plan(work_dir, shard))
        images, total = report.fingerprint
        content = json.dumps([report.file_bytes, [images, f'{total:064x}'], *report[2:]])
        write_whole(os.path.join(work_dir, shard + REPORT_ENDING), content)
        with remote.explained(data_dir, remote.WRITE):
            outputs.move(unfinished, os.path.join(data_dir, shard))
    except (CommandError, tf.errors.OpError) as error:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(unfinished)
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        is_transient = isinstance(error, remote.UnreachableError)
        write_whole(failure, json.dumps([is_transient, f'{shard} was not written: {message}']))


def _write_records(path: str, images: List[PlannedImage]) -> ShardReport:
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
        kind = next((name for start, name in _KINDS.items() if encoded.startswith(start)), 'unknown')
        if kind == 'JPEG' and self._session.run(self._components, feed) == 4:
            kind = 'CMYK'
        if kind == 'JPEG':
            height, width, _ = self._session.run(self._shape, feed)
        else:
            (height, width, _), encoded = self._session.run([self._shape, self._jpeg], feed)
        return encoded, int(height), int(width), kind


@functools.lru_cache(maxsize=None)
def _codec() -> _Codec:
    """The codec of the process, with one session for all shards."""
    return _Codec()
