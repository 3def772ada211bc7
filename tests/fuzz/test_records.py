"""Damaged TFRecord files: pipelines, checker and audit neither crash nor hang, and agree on each record."""

import multiprocessing
import os
import pathlib
import random
import struct
import sys
import zlib
from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from data import checks, record_checker, records, tf_example, tfrecord
from data.record_checker import RecordChecker
from data.tf_example import Fields
from inception_v3.config import Config
from inception_v3.input.record_preprocessing import RecordPreprocessing
from tests.fuzz import child
from tests.support.images import saved
from tests.support.records import framed
from tools.datasets import image_example
from tools.datasets.audit.shard import ShardAuditor

NUM_CLASSES = 6
# Training and evaluation, each with two preprocessings: `inception` on single records, `vgg` on groups.
GRAPHS = 4
CANNOT_BE_DECODED = 'cannot be decoded'
SIDES = (0, 1, 2, 255, 9999, 10001, 20000, 32768, 65500, 65535, 2**31 - 1, 2**31, 2**32 - 1)
FIELDS = ['image/encoded', 'image/class/label', *(f'image/object/bbox/{corner}' for corner in tf_example.CORNERS)]
NUMBERS = (0, 1, 5, 6, -1, 2**31 - 1, 2**31, 2**32 + 1, 2**63 - 1, -(2**63))
FRACTIONS = (0.0, 1.0, 0.5, -0.5, 1.5, 1e30, 1e-40, float('nan'), float('inf'), -float('inf'))


def real_images() -> List[bytes]:
    """Small photographs in all common formats and variants, and some in unsupported ones."""
    photo = child.photograph()
    variants: List[Any] = [
        ('RGB', 'JPEG', {}),
        ('RGB', 'JPEG', {'progressive': True}),
        ('RGB', 'JPEG', {'subsampling': 0, 'optimize': True}),
        *((mode, 'JPEG', {}) for mode in ('L', 'CMYK')),
        *((mode, 'PNG', {}) for mode in ('RGB', 'RGBA', 'L', 'LA', 'P', '1', 'I')),
        ('P', 'GIF', {}),
        ('P', 'GIF', {'save_all': True, 'append_images': [photo.convert('P')]}),
        *(('RGB', image_format, {}) for image_format in ('BMP', 'TIFF')),
    ]
    return [saved(photo.convert(mode), image_format, **options) for mode, image_format, options in variants]


# Each of these functions draws a change.


def with_other_size(image: bytes, draw: random.Random) -> bytes:
    """An image with another size in its header."""
    changed = bytearray(image)
    sides = draw.choice(SIDES), draw.choice(SIDES)
    if image.startswith(b'\x89PNG'):
        changed[16:24] = struct.pack('>II', *sides)
        changed[29:33] = struct.pack('>I', zlib.crc32(bytes(changed[12:29])))
    elif image.startswith(b'GIF'):
        at = draw.choice([6, image.find(b',', 13 + 3 * 256) + 5])
        changed[at : at + 4] = struct.pack('<HH', *(min(side, 65535) for side in sides))
    else:
        at = max(image.find(b'\xff\xc0'), image.find(b'\xff\xc2'))
        if at >= 0:
            changed[at + 5 : at + 9] = struct.pack('>HH', *(min(side, 65535) for side in sides))
    return bytes(changed)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Bytes with bits flipped, a piece cut out, doubled or replaced, or the end cut off."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5, 20])):
        if not changed:
            break
        # Half of the changes are at the beginning, where the headers are.
        at = draw.randrange(min(len(changed), draw.choice([40, 700, 1 << 30])))
        kind = draw.randrange(6)
        if kind <= 1:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            changed[at : at + 4] = draw.choice([b'\0\0\0\0', b'\xff\xff\xff\xff', b'\x7f\xff\xff\xff', b'\xff\xd9'])
        elif kind == 3:
            del changed[at : at + draw.choice([1, 2, 30, 1000])]
        elif kind == 4:
            changed[at:at] = changed[at : at + draw.choice([1, 2, 30, 1000])]
        else:
            del changed[at:]
    return bytes(changed)


def make_image(images: List[bytes], draw: random.Random) -> bytes:
    image = draw.choice(images)
    kind = draw.randrange(8)
    if kind == 0:
        return with_other_size(image, draw)
    if kind == 1:
        # Truncated, and followed by the regular end.
        return image[: draw.randrange(len(image))] + draw.choice([b'\xff\xd9', b'\0\0\0\0IEND\xaeB`\x82', b';'])
    if kind == 2:
        return draw.choice([b'', b'\xff', b'\xff\xd8\xff', b'\x89PNG', b'GIF89a', b'P6 1 1 255\nabc', bytes(100)])
    return damaged(image, draw) if kind <= 5 else image


def make_example(images: List[bytes], draw: random.Random) -> bytes:
    boxes = [image_example.Box(0.1, 0.2, 0.6, 0.7)] * draw.choice([0, 0, 1, 2, 300])
    image = make_image(images, draw) if draw.random() < 0.7 else images[0]
    example = image_example.make_example(image, 'JPEG', draw.choice([1, 5]), 'cat', 60, 80, 'a.jpg', boxes=boxes)
    if draw.random() < 0.3:
        spoil_fields(example, draw)
    serialized = example.SerializeToString(deterministic=True)
    kind = draw.randrange(20)
    if kind == 0:
        return damaged(serialized, draw)
    if kind == 1:
        # Only lengths and tags, without a long image between them.
        example.features.feature['image/encoded'].bytes_list.value[:] = [images[0][:20]]
        return damaged(example.SerializeToString(deterministic=True), draw)
    if kind == 2:
        return serialized + draw.choice([serialized, b'\x12\x01a', b'\x0b', b'\xff', b'\n\0'])
    if kind == 3:
        return draw.choice([b'', b'\0', b'\xff\xff no protocol buffer', b'text', images[0], bytes(50), b'\n\xff'])
    return serialized


def spoil_fields(example: tf.train.Example, draw: random.Random) -> None:
    name = draw.choice(FIELDS)
    feature = example.features.feature[name]
    kind = draw.randrange(6)
    if kind == 0:
        del example.features.feature[name]
    elif kind == 1:
        feature.int64_list.value[:] = [draw.choice(NUMBERS) for _ in range(draw.choice([0, 1, 2, 5000]))]
    elif kind == 2:
        feature.float_list.value[:] = [draw.choice(FRACTIONS) for _ in range(draw.choice([0, 1, 2, 5000]))]
    elif kind == 3:
        feature.bytes_list.value[:] = [b'\xff\0'] * draw.choice([0, 1, 2, 5000])
    elif kind == 4:
        example.features.feature['image/class/label'].int64_list.value[:] = [draw.choice(NUMBERS)]
    else:
        count = draw.choice([1, 2, 3])
        for corner in tf_example.CORNERS:
            values = [draw.choice(FRACTIONS) for _ in range(count)]
            example.features.feature[f'image/object/bbox/{corner}'].float_list.value[:] = values


def make_file(path: str, images: List[bytes], draw: random.Random) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(draw.choice([0, 1, 2, 2, 3])):
            writer.write(make_example(images, draw))
    kind = draw.randrange(12)
    if kind > 3:
        return
    with open(path, 'rb') as file:
        content = file.read()
    if kind == 0:
        content = damaged(content, draw)
    elif kind == 1:
        content = content[: draw.randrange(len(content) + 1)]
    elif kind == 2:
        length = draw.choice([0, 1, 17, 10**6, 2**31 - 1, 2**31, 10**12, 2**60, 2**63 - 8, 2**63, 2**64 - 6, 2**64 - 1])
        content += framed(b'x' * 17, length)
    else:
        content = draw.choice([b'', b'\0', b'text', bytes(1000), *images[:2], b'\x1f\x8b\x08\0' + bytes(range(99))])
    with open(path, 'wb') as file:
        file.write(content)


class Pipelines:
    """The preprocessing of training and evaluation, without batches, of single records and of records in groups."""

    def __init__(self, path: str, good: bytes):
        self._graphs: List[Any] = []
        with tf.Graph().as_default() as graph:
            read = tf.autograph.experimental.do_not_convert(self._read)
            dataset = tf.data.Dataset.from_tensors(path).repeat().flat_map(read)
            self._iterator = tf.data.make_initializable_iterator(dataset)
            self._next = self._iterator.get_next()
            self._serialized = tf.placeholder(tf.string, [])
            for is_training in (True, False):
                for preprocessing in ('inception', 'vgg'):
                    config = Config(
                        use_tpu=False,
                        height=75,
                        width=75,
                        num_classes=NUM_CLASSES,
                        preprocessing=preprocessing,
                        use_annotated_bbox=preprocessing == 'inception',
                    )
                    record_preprocessing = RecordPreprocessing(is_training, config)
                    self._graphs.append(
                        record_preprocessing.preprocess(records.Record(self._serialized))
                        if preprocessing == 'inception'
                        else child.preprocess_in_group(record_preprocessing, good, self._serialized)
                    )
        self._session = tf.Session(graph=graph)
        self._session.run(self._iterator.initializer)

    def _read(self, path: tf.Tensor) -> tf.data.Dataset:
        end = tf.data.Dataset.from_tensors((True, ''))
        reader = tfrecord.reader(os.curdir, 1 << 20)
        return reader(path, tf.constant(0, tf.int64)).map(lambda record: (False, record)).concatenate(end)

    def read(self) -> Tuple[List[bytes], bool]:
        """The records of the file that is at the path now, and whether it can be read to its end."""
        found: List[bytes] = []
        while True:
            try:
                is_end, record = self._session.run(self._next)
            except tf.errors.DataLossError:
                self._session.run(self._iterator.initializer)
                return found, False
            if is_end:
                return found, True
            found.append(record)

    def is_refused(self, serialized: bytes, which: int) -> bool:
        """Whether training or evaluation refuses a record."""
        try:
            features, label = self._session.run(self._graphs[which], {self._serialized: serialized})
        except tf.errors.InvalidArgumentError:
            return True
        assert features.shape == (75, 75, 3) and np.isfinite(features).all() and 0 <= label < NUM_CLASSES
        return False


def check(path: str, pipelines: Pipelines, checker: RecordChecker, auditor: ShardAuditor) -> None:
    found = {bad.position: bad.problem for bad in checker.search([path], print)}
    assert all(len(problem) < 500 and problem.isprintable() for problem in found.values()), found
    audited = auditor.audit(path)
    at_end = audited.records
    ends_at = [place.position for kind, place in audited.problems if kind == 'bad_files']
    assert ends_at == [at_end] * ('the file is damaged' in found.get(at_end, '')), (ends_at, at_end, found)
    try:
        checks.check_not_empty('tfrecord', [path])
    except records.DataError as error:
        assert str(error).startswith(path) and len(str(error).splitlines()) == 1, error
        if at_end and not ends_at:
            raise
        # A run ends here. Without this check, an impossible record length would crash it.
        if any(fault in str(error) for fault in ('claims a length of', 'is truncated at byte')):
            return
    serialized, is_whole = pipelines.read()
    assert len(serialized) == at_end
    assert is_whole == (at_end not in found)
    kinds = ('bad_fields', 'bad_boxes', 'undecodable')
    bad = {place.position for kind, place in audited.problems if kind in kinds}
    for position, record in enumerate(serialized):
        told = found.get(position)
        which = (at_end + position + len(record)) % GRAPHS
        refused = pipelines.is_refused(record, which)
        if told and not refused:
            # Only training parses boxes, and only its first variant uses them.
            refused = pipelines.is_refused(record, 0)
        assert told or not refused, position
        # A JPEG with damage below the crop can be used: the pipeline does not read that part.
        assert refused or not told or (b'\xff\xd8\xff' in record and CANNOT_BE_DECODED in told), (position, told)
        # The checker parses with TensorFlow, and the audit with Python. Rarely, one of them can parse a damaged record
        # and the other cannot.
        for_python_alone = told == record_checker.UNREADABLE and position not in bad
        is_none = record_checker.parse_example(record) is None
        assert (position in bad) == bool(told) or for_python_alone or is_none, (position, told)


def main(cases: int, folder: pathlib.Path) -> None:
    images = real_images()
    path = str(folder / 'train-00000-of-00001')
    good = image_example.make_example(images[0], 'JPEG', 1, 'cat', 60, 80, 'a.jpg').SerializeToString()
    pipelines, checker = Pipelines(path, good), RecordChecker(NUM_CLASSES)
    auditor = ShardAuditor('tfrecord', Fields(), NUM_CLASSES, multiprocessing.get_context('spawn').Value('q', 0))
    # The largest allowed image takes 300 MB as bytes, and 1.2 GB more as floats for resizing.
    for case in child.cases_in(folder, cases, seconds=60, mebibytes=2000):
        make_file(path, images, random.Random(case))
        check(path, pipelines, checker, auditor)


@pytest.mark.slow
def test_pipelines_checker_and_audit_agree_on_damaged_files(tmp_path: pathlib.Path) -> None:
    child.run(__name__, child.many(4_000), tmp_path)


if __name__ == '__main__':
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
