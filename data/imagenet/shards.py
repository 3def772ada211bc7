"""What the processes that convert ImageNet do: a shard's images, as planned, become a record file."""

import contextlib
import functools
import json
import os
import uuid
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from data import conversion, remote, tf_example
from data.fingerprint import SplitFingerprint
from data.imagenet import source as imagenet_source
from data.imagenet.source import Image
from data.records import DataError
from data.tf_example import Box
from preprocessing.decoding import decode_image

REPORT_ENDING = '.report'
_FAILURE_NAME = 'failure'

# The published conversion's.
_QUALITY = 100
_JPEG_START = b'\xff\xd8\xff'
_OTHER_STARTS = {b'\x89PNG': 'PNG', b'GIF8': 'GIF'}


class PlannedImage(NamedTuple):
    """An image, and what its record says besides.

    Attributes:
      image: where it lies.
      label: its class, from 1 on.
      text: the name of its class.
      boxes: its bounding boxes.
    """

    image: Image
    label: int
    text: str
    boxes: List[Box]


class ShardReport(NamedTuple):
    """What was made of a shard's images.

    Attributes:
      file_bytes: the size of the record file.
      fingerprint: of the images and labels in it.
      converted: the names of the images that were encoded anew, by what they were: 'CMYK' (or YCCK), 'PNG' or 'GIF'.
      unreadable: the names of the images that cannot be decoded, and are not in it.
    """

    file_bytes: int
    fingerprint: SplitFingerprint
    converted: Dict[str, List[str]]
    unreadable: List[str]


def write_plan(work_dir: str, shard: str, images: List[PlannedImage]) -> None:
    """Keeps the images of a shard for `convert`."""
    write_json(os.path.join(work_dir, f'{shard}.plan'), images)


def _read_plan(work_dir: str, shard: str) -> List[PlannedImage]:
    rows = json.loads(imagenet_source.read_file(os.path.join(work_dir, f'{shard}.plan')).decode())
    return [
        PlannedImage(Image(*image), label, text, [Box(*box) for box in boxes]) for image, label, text, boxes in rows
    ]


def report_path(work_dir: str, shard: str) -> str:
    """Where the report on a finished shard is."""
    return os.path.join(work_dir, shard + REPORT_ENDING)


def read_report(work_dir: str, shard: str) -> Optional[ShardReport]:
    """What was made of a shard; None if it is not finished, or what was kept of that is damaged."""
    content = remote.read(report_path(work_dir, shard))
    if content is None:
        return None
    try:
        file_bytes, (images, total), converted, unreadable = json.loads(content.decode())
        return ShardReport(file_bytes, SplitFingerprint(images, int(total, 16)), converted, unreadable)
    except (ValueError, TypeError):
        return None


def forget(work_dir: str, shards: Iterable[str]) -> None:
    """Makes as if the shards had not been converted, nor a conversion failed."""
    names = set(remote.names_in(work_dir) or ())
    for name in names & {_FAILURE_NAME, *(shard + REPORT_ENDING for shard in shards)}:
        tf.io.gfile.remove(os.path.join(work_dir, name))


def raise_failure(work_dir: str) -> None:
    """Does nothing, unless a conversion failed.

    Raises:
      DataError: an image was not there any more, or a file could not be written.
      UnreachableError: a remote file could not be reached.
    """
    content = remote.read(os.path.join(work_dir, _FAILURE_NAME))
    if content:
        may_pass, message = json.loads(content.decode())
        raise (remote.UnreachableError if may_pass else DataError)(message)


def convert(shard: str, data_dir: str, work_dir: str) -> None:
    """Writes a record file and its report; the file has its name only when both are whole.

    A failure is left for `raise_failure`: Beam would show a traceback for each. After one, nothing more is converted.

    Args:
      shard: the file's name.
      data_dir: where it is to be.
      work_dir: where its plan is, and its report will be.
    """
    failure = os.path.join(work_dir, _FAILURE_NAME)
    if tf.io.gfile.exists(failure):
        return
    # Another process may be at the same shard: one thought dead, or one that a cluster started in case this is slow.
    unfinished = os.path.join(work_dir, f'{shard}.{uuid.uuid4().hex}.unfinished')
    try:
        report = _write_records(unfinished, _read_plan(work_dir, shard))
        images, total = report.fingerprint
        write_json(report_path(work_dir, shard), [report.file_bytes, [images, f'{total:064x}'], *report[2:]])
        with remote.explained(data_dir, remote.WRITE):
            tf.io.gfile.rename(unfinished, os.path.join(data_dir, shard), overwrite=True)
    except (DataError, remote.RemoteError, tf.errors.OpError) as error:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(unfinished)
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        write_json(failure, [isinstance(error, remote.UnreachableError), f'{shard} was not made: {message}'])


def _write_records(path: str, images: Iterable[PlannedImage]) -> ShardReport:
    fingerprint = SplitFingerprint()
    converted: Dict[str, List[str]] = {}
    unreadable: List[str] = []
    with remote.explained(path, remote.WRITE), tf.io.TFRecordWriter(path) as writer:
        for image, label, text, boxes in images:
            try:
                encoded, height, width, was = _codec().as_rgb_jpeg(imagenet_source.read(image))
            except tf.errors.InvalidArgumentError:
                unreadable.append(image.path if image.size is None else f'{image.filename} in {image.path}')
                continue
            if was != 'JPEG':
                converted.setdefault(was, []).append(image.filename)
            example = tf_example.make_example(
                encoded, 'JPEG', label, text, height, width, image.filename, image.synset, boxes
            )
            # The order of an Example's fields is random otherwise, and the same data another file each time.
            writer.write(example.SerializeToString(deterministic=True))
            fingerprint = fingerprint.with_image(label, encoded)
    return ShardReport(remote.size(path), fingerprint, converted, unreadable)


def write_json(path: str, value: object) -> None:
    """Writes a file that is there as a whole, or not at all."""
    conversion.write_whole(path, json.dumps(value).encode(), os.path.dirname(path))


@functools.lru_cache(maxsize=None)
def _codec() -> '_Codec':
    """The process's own: a session is not made for every shard."""
    return _Codec()


class _Codec:
    """Makes sure that images can be decoded, and of those that are no RGB or grey JPEG files makes some."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            pixels = decode_image(self._encoded)
            self._shape = tf.shape(pixels)
            self._components = tf.image.extract_jpeg_shape(self._encoded)[2]
            self._jpeg = tf.image.encode_jpeg(pixels, format='rgb', quality=_QUALITY)
        # There are as many processes as cores.
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        self._session = tf.compat.v1.Session(graph=graph, config=config)

    def as_rgb_jpeg(self, encoded: bytes) -> Tuple[bytes, int, int, str]:
        """A JPEG file with the image, its height and width, and what the image was: 'JPEG' if it is as it was.

        Raises:
          tf.errors.InvalidArgumentError: it cannot be decoded.
        """
        feed = {self._encoded: encoded}
        was = 'JPEG'
        if not encoded.startswith(_JPEG_START):
            was = next((name for start, name in _OTHER_STARTS.items() if encoded.startswith(start)), 'unknown')
        elif self._session.run(self._components, feed) == 4:
            was = 'CMYK'
        if was == 'JPEG':
            height, width, _ = self._session.run(self._shape, feed)
        else:
            (height, width, _), encoded = self._session.run([self._shape, self._jpeg], feed)
        return encoded, int(height), int(width), was
