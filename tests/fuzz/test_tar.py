"""Damaged tar shards: Python and the input pipeline find the same samples and the same problems."""

import functools
import io
import multiprocessing
import pathlib
import random
import sys
import tarfile
from typing import Callable, List, Tuple

import pytest

from compat import tf
from data import checks, records
from data.tar.layout import BLOCK
from data.tar.shard import SampleChecker
from data.tf_example import Fields
from inception_v3.config import Config
from inception_v3.input.record_preprocessing import RecordPreprocessing
from tests.data.tar.readers import FOLDERS, TAR_FORMATS, Reader, both
from tests.fuzz import child
from tests.support.images import saved
from tools.datasets.audit.shard import ShardAuditor

NUM_CLASSES = 6
SIZES = [
    *(b'%011o\0' % size for size in (0, 1, 511, 512, 513, 700, 10**6, 8**11 - 1)),
    *(b'777777777777', b'999999999999', b'           7', b'7          8', b'-0000000001\0', b'\0' * 12, b' ' * 12),
    *(bytes([first]) + value.to_bytes(11, 'big') for first in (0x80, 0xFF, 0x81) for value in (0, 700, 2**56, 2**63)),
    b'\xff' * 12,
]
KINDS = b'\x00012345678LKxgXDSVMNA\xff'
LABELS = (b'', b'0', b'5', b'6', b'-1', b' 3 ', b'1 2', b'9' * 18, b'9' * 19, b'0' * 18, b'\xff', b'cat', b'1\n')
PAX = (
    *(('size', value) for value in ('700', ' 1', '', '-1', '9' * 18, '9' * 30)),
    *(('path', value) for value in ('', 'x', 'g/7.jpg', 'a\0b.jpg', 'é.jpg', 'n' * 5000 + '.jpg')),
    *(('comment', value) for value in ('a\n12 path=x.y\n', ' path=x.jpg\n')),
)


def real_images() -> List[Tuple[str, bytes]]:
    photo = child.photograph().resize((24, 20))
    kinds = [('jpg', 'JPEG'), ('JPEG', 'JPEG'), ('png', 'PNG'), ('ppm', 'PPM')]
    return [(extension, saved(photo, image_format)) for extension, image_format in kinds]


def make_shard(images: List[Tuple[str, bytes]], draw: random.Random) -> bytes:
    """A valid tar file, whose members may have invalid content."""
    file = io.BytesIO()
    tar_format = draw.choice(TAR_FORMATS)
    with tarfile.open(fileobj=file, mode='w', format=tar_format) as archive:
        names: List[str] = []

        def add(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> None:
            member = tarfile.TarInfo(name)
            if kind == tarfile.REGTYPE and names and draw.random() < 0.1:
                kind, content, member.linkname = tarfile.LNKTYPE, b'', draw.choice(names)
            # The longest name in a header without extensions.
            names.extend([name] if len(name) <= 100 or tar_format != tarfile.USTAR_FORMAT else [])
            member.size, member.type = len(content), kind
            if tar_format == tarfile.PAX_FORMAT and draw.random() < 0.3:
                member.mtime = 1.5  # type: ignore[assignment]
                if draw.random() < 0.5:
                    member.pax_headers = dict([draw.choice(PAX)])
            archive.addfile(member, io.BytesIO(content))

        for key in range(draw.choice([0, 1, 2, 3])):
            folder = draw.choice(FOLDERS[: 2 if tar_format == tarfile.USTAR_FORMAT else 3])
            extension, image = draw.choice(images)
            members = [(extension, image), ('cls', b'%d' % draw.randrange(NUM_CLASSES))]
            if draw.random() < 0.1:
                members[1] = ('cls', draw.choice(LABELS))
            if draw.random() < 0.1:
                members.append(draw.choice([('json', b'{}'), ('png', image), ('CLS', b'1'), ('', b'x'), ('txt', b'')]))
            if draw.random() < 0.1:
                members.pop(0)
            for extension, content in draw.sample(members, len(members)):
                add(f'{folder}{key}.{extension}', content)
            if draw.random() < 0.1:
                add('x', b'', draw.choice([tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE]))
    return file.getvalue()


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A shard with changed bits, bytes, fields, types or blocks, and often with recomputed checksums."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        if len(changed) < BLOCK:
            break
        # The zeros at the end are a large part of a small shard: most changes are before them.
        used = max(1, len(bytes(changed).rstrip(b'\0')) // BLOCK + 1)
        block = draw.randrange(min(used, len(changed) // BLOCK)) * BLOCK
        at = block + draw.choice([draw.randrange(BLOCK), draw.randrange(40), 100, 124, 148, 156, 257, 345, 482, 504])
        kind = draw.randrange(9)
        if kind <= 1:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            changed[block + 124 : block + 136] = draw.choice(SIZES)
        elif kind == 3:
            changed[block + 156] = draw.choice(KINDS)
        elif kind == 4:
            del changed[at : at + draw.choice([1, BLOCK, 3 * BLOCK])]
        elif kind == 5:
            changed[at:at] = changed[at : at + draw.choice([1, BLOCK, 2 * BLOCK])]
        elif kind == 6:
            changed[block : block + BLOCK] = bytes(BLOCK)
        elif kind == 7:
            changed[at : at + 3] = draw.choice([b'\0\0\0', b'\xff\xff\xff', b'../', b' 99', b'\n1 ', b'=\n\0'])
        else:
            del changed[draw.randrange(len(changed)) :]
    if draw.random() < 0.7:
        for start in range(0, len(changed) - BLOCK + 1, BLOCK):
            header = changed[start : start + BLOCK]
            if header[257:262] == b'ustar':
                header[148:156] = b' ' * 8
                changed[start + 148 : start + 156] = b'%06o\0 ' % sum(header)
    return bytes(changed)


def make_case(images: List[Tuple[str, bytes]], draw: random.Random) -> bytes:
    content = make_shard(images, draw)
    kind = draw.randrange(12)
    if kind == 0:
        return content
    if kind == 1:
        return content[: draw.randrange(len(content) + 1)]
    if kind == 2:
        foreign = [b'', b'\0', bytes(BLOCK), bytes(BLOCK + 1), b'text' * 500, b'\x1f\x8b\x08\0' + bytes(range(256)) * 9]
        return draw.choice([*foreign, images[0][1], content + content, content[:-BLOCK], content + b'\1'])
    return damaged(content, draw)


def refusal(good: bytes) -> Callable[[bytes], bool]:
    """A function that tells whether an evaluation refuses a sample."""
    with tf.Graph().as_default() as graph:
        serialized = tf.placeholder(tf.string, [])
        config = Config(use_tpu=False, height=75, width=75, num_classes=NUM_CLASSES, data_format='tar')
        evaluated = child.preprocess_in_group(RecordPreprocessing(is_training=False, config=config), good, serialized)
    session = tf.Session(graph=graph)

    def is_refused(sample: bytes) -> bool:
        try:
            session.run(evaluated, {serialized: sample})
        except tf.errors.InvalidArgumentError:
            return True
        return False

    return functools.lru_cache(maxsize=None)(is_refused)


def main(cases: int, folder: pathlib.Path) -> None:
    images = real_images()
    reader, is_refused = Reader(str(folder / 'read.tar')), refusal(b'%020d' % 1 + images[0][1])
    checker = SampleChecker(NUM_CLASSES, False, Fields())
    auditor = ShardAuditor('tar', Fields(), NUM_CLASSES, multiprocessing.get_context('spawn').Value('q', 0))
    path = folder / 'train-00000.tar'
    problems = set()
    for case in child.cases_in(folder, cases, seconds=60, mebibytes=700):
        path.write_bytes(make_case(images, random.Random(case)))
        found = both(reader, path.read_bytes())
        samples = [(sample, checker.problem((shard, sample))) for shard, sample in checker.records(str(path))]
        problems |= {sample.problem for sample, _ in samples}
        for serialized, (_, problem) in zip(found, samples):
            assert problem is None or (problem.isprintable() and len(problem) < 700), problem
            # A JPEG with damage below the crop can be used: the pipeline does not read that part.
            can_differ = problem and 'cannot be decoded' in problem
            assert can_differ or is_refused(serialized) == bool(problem), (serialized, problem)
        audited = auditor.audit(str(path))
        # If neither label nor image can be used, the checker names the label.
        kinds = ('bad_files', 'undecodable', 'bad_fields')
        bad = {place.position: place for each in kinds for kind, place in audited.problems if kind == each}
        assert sorted(bad.values()) == [*checker.search([str(path)], print)], bad
        try:
            checks.check_not_empty('tar', [str(path)])
        except records.DataError as error:
            assert str(error).startswith(str(path)) and len(str(error).splitlines()) == 1
    # The cases cover most problems.
    assert len(problems) >= (10 if cases > 1000 else 6), problems


@pytest.mark.slow
def test_both_readers_agree_on_damaged_shards(tmp_path: pathlib.Path) -> None:
    child.run(__name__, child.many(2_000), tmp_path)


if __name__ == '__main__':
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
