"""Tar shards written by tarfile, webdataset and GNU tar: the input pipeline and Python read the same samples."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from typing import Any, Dict, List, Tuple

import pytest
import webdataset

from compat import tf
from data import remote
from data.tar import reader as tar_reader
from data.tar.layout import BLOCK, Problem
from data.tar.shard import Shard
from tests.data.tar.readers import END, FOLDERS, TAR_FORMATS, Reader, bad, both, fine, header, member
from tests.support.graphs import evaluate
from tests.support.photos import Photo
from tests.support.tar_files import Files, tar_of, write_tar

SIZE = b'%011o\0' % 700
ONE = [('1.jpg', b'one'), ('1.cls', b'1')]
LETTERS = [f'{letter * 90}/{"c" * 90}' for letter in 'ab']


@pytest.mark.parametrize('tar_format', TAR_FORMATS)
def test_samples__have_their_images_in_all_formats_of_names(reader: Reader, tar_format: int) -> None:
    folders = FOLDERS[: 2 if tar_format == tarfile.USTAR_FORMAT else 3]
    images = [bytes([i]) * (600 * i + 1) for i in range(9)]
    files: List[Tuple[str, bytes]] = []
    for i, image in enumerate(images):
        key = f'{folders[i % len(folders)]}{i}'
        files += [(f'{key}.{["jpg", "JPEG", "png", "Ppm"][i % 4]}', image), (f'{key}.cls', b'%d\n' % i)][:: (-1) ** i]
    # In the pax format, a fractional time adds an extension header to each file.
    assert both(reader, tar_of(files, tar_format, mtime=1.5)) == [fine(i, image) for i, image in enumerate(images)]


def test_samples__written_by_webdataset_have_their_images_and_labels(
    reader: Reader, tmp_path: pathlib.Path, photos: List[Photo]
) -> None:
    for name in ('a.tar', 'b.tar'):
        with webdataset.TarWriter(str(tmp_path / name), encoder=name == 'a.tar') as writer:
            for photo in photos:
                label: Any = photo.label if name == 'a.tar' else b'%d' % photo.label
                extra: Any = {'of': 'photo'} if name == 'a.tar' else b'{}'
                writer.write({'__key__': f'p/{photo.label:06d}', 'jpg': photo.encoded, 'json': extra, 'cls': label})
        assert both(reader, (tmp_path / name).read_bytes()) == [fine(photo.label, photo.encoded) for photo in photos]


def pax(**said: str) -> bytes:
    return tarfile.TarInfo._create_pax_generic_header(said, b'x', 'utf-8')  # type: ignore[attr-defined]


def comment(size: int) -> bytes:
    """A pax header of a size in bytes."""
    begin = b'%d comment=' % size
    return member('x', begin + b'c' * (size - len(begin) - 1) + b'\n', tarfile.XHDTYPE)


def changed(at: int, value: bytes, checksum: bytes = b'%06o\0 ') -> bytes:
    """A shard of one sample, with changed bytes in its first header, and the checksum in a given format."""
    shard = bytearray(tar_of(ONE))
    shard[at : at + len(value)] = value
    shard[148:156] = b' ' * 8
    shard[148:156] = checksum % sum(shard[:BLOCK])
    return bytes(shard)


def sample(before: bytes, name: str = '1.jpg', size_field: bytes = SIZE) -> bytes:
    """A shard with a sample of the label 3 after other bytes; `name` is the file of its image."""
    return before + header(name, size_field, b'x' * 700) + member('1.cls', b'3') + END


INNER = tar_of([('9.jpg', b'nine'), ('9.cls', b'9')], tarfile.PAX_FORMAT, mtime=0.5)
# Blocks: 1.jpg 0 to 2, 1.cls 3 and 4, 2.jpg 5 to 7, 2.cls 8 and 9, then the end.
TWO = tar_of([('1.jpg', b'a' * 700), ('1.cls', b'1'), ('2.jpg', b'b' * 700), ('2.cls', b'2')])
A, B, OF_3, OF_1 = fine(1, b'a' * 700), fine(2, b'b' * 700), fine(3, b'x' * 700), fine(1, b'one')
DAMAGED = TWO[: 5 * BLOCK] + bytes([TWO[5 * BLOCK] ^ 1]) + TWO[5 * BLOCK + 1 :]
NO_END, TRUNCATED = bad(Problem.NO_END), bad(Problem.TRUNCATED)
SHARDS: Dict[str, Tuple[bytes, List[bytes]]] = {
    # Other files with the key, and folders, which only a slash marks in the oldest archives.
    'extra files and folders': (
        member('x', b'', tarfile.DIRTYPE)
        + member('x/1.json', b'')
        + member('x/1.jpg', b'one')
        + member('old/', b'', b'\0')
        + member('x/1.seg.png', b'segments')
        + member('x/1.cls', b' 7 ')
        + member('x/1.txt', b'')
        + END,
        [fine(7, b'one')],
    ),
    'a shard within a shard': (
        tar_of([('1.jpg', INNER), ('1.cls', b'1'), ('2.cls', b'2'), ('2.jpg', INNER)]),
        [fine(1, INNER), fine(2, INNER)],
    ),
    'names in two fields': (
        tar_of([(f'{LETTERS[0]}/1.jpg', b'one'), (f'{LETTERS[0]}/1.cls', b'1'), (f'{LETTERS[1]}/1.cls', b'2')]),
        [OF_1, bad(Problem.NO_IMAGE)],
    ),
    'names that fill their field': (
        tar_of([(f'{"x" * 96}.jpg', b'one'), (f'{"x" * 96}.cls', b'1')], tarfile.PAX_FORMAT),
        [OF_1],
    ),
    # macOS's tar writes a file of attributes before each file.
    'files without a key': (
        tar_of([('._1.jpg', b'0'), ('1.jpg', b'1'), ('README', b'2'), ('._1.cls', b'3'), ('1.cls', b'4')]),
        [fine(4, b'1')],
    ),
    'a name that is not UTF-8': (sample(member('1.\udcff', b'')), [OF_3]),
    'a file with another key': (
        tar_of([('1.jpg', b'one'), ('meta.json', b'{}'), ('1.cls', b'1')]),
        [bad(Problem.NO_LABEL), bad(Problem.NO_IMAGE)],
    ),
    **{
        f'label {label!r}': (tar_of([('1.jpg', b'one'), ('1.cls', label)]), found)
        for label, found in (
            *((b'9' * 18, [fine(10**18 - 1, b'one')]), (b' ' * 17 + b'7', [fine(7, b'one')])),
            *((b'0' * 18, [fine(0, b'one')]), (b'0' * 18 + b'\n', [bad(Problem.BAD_LABEL)])),
        )
    },
    **{
        f'type {kind!r} of regular files': (tar_of(ONE, type=kind), [OF_1])
        for kind in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
    },
    # Links and devices have no content, whatever their size. A hard link is an empty file: its sample is unusable.
    **{
        f'type {kind!r} of others': (
            header('9.jpg', SIZE, kind=kind) + tar_of(ONE),
            [bad(Problem.NO_IMAGE)] * (kind == b'1') + [OF_1],
        )
        for kind in (b'1', b'2', b'3', b'4', b'6')
    },
    'a name of 4,096 bytes': (
        tar_of([('n' * 4092 + '.jpg', b'one'), ('n' * 4092 + '.cls', b'1')], tarfile.GNU_FORMAT),
        [OF_1],
    ),
    # Without the last letter of jpg and of cls, there are neither an image nor a label.
    'a name of 4,097 bytes': (
        tar_of([('n' * 4093 + '.jpg', b'one'), ('n' * 4093 + '.cls', b'1')], tarfile.GNU_FORMAT),
        [],
    ),
    'an extension of a mebibyte': (comment(1 << 20) + tar_of(ONE), [OF_1]),
    'a longer extension': (comment((1 << 20) + 1) + tar_of(ONE), [bad(Problem.DAMAGED)]),
    # A record's value that looks like a record is not one.
    'pax: a record as a value': (sample(pax(comment='a\n14 path=9.jpg\n')), [OF_3]),
    'pax: a value without a length': (sample(pax(comment=' path=9.jpg\n')), [OF_3]),
    # Sizes in pax headers are not read.
    'pax: a size': (sample(pax(size='9' * 18)), [OF_3]),
    'pax: several records': (
        sample(pax(path='9.cls', comment='x', size='700').replace(b'path=9.cls', b'path=1.jpg'), '?'),
        [OF_3],
    ),
    'pax: 100 records': (sample(pax(**{f'comment{i:02}': '' for i in range(99)}, path='1.jpg'), '?'), [OF_3]),
    'pax: no line feed after a value': (sample(member('x', b'14 path=9.jpg ', tarfile.XHDTYPE)), [OF_3]),
    'pax: a record without a value': (sample(member('x', b'4 a\n14 path=9.jpg\n', tarfile.XHDTYPE)), [OF_3]),
    'pax: a wrong length': (sample(member('x', b'99 path=9.jpg\n', tarfile.XHDTYPE)), [OF_3]),
    **{
        f'size {size_field!r}': (sample(b'', size_field=size_field), found)
        for found, size_fields in (
            ([OF_3], (SIZE, b'%011o ' % 700, b'%11o\0' % 700, b'%012o' % 700, b'\x80' + (700).to_bytes(11, 'big'))),
            (
                [bad(Problem.DAMAGED)],
                (
                    *(b'0000000128x\0', b'\x80\0\0\1\0' + (700).to_bytes(7, 'big')),
                    *(b'\x80' + b'\1' * 11, b'\xff' * 12),
                    *(b'\x80\1\0\0\0' + (700).to_bytes(7, 'big'), b'\x80\0\0\0\1' + (700).to_bytes(7, 'big')),
                ),
            ),
            (
                [TRUNCATED],
                (
                    *(b'\x80\0\0\0\0\x7f' + b'\xff' * 6, b'\x80\0\0\0\0\1' + (700).to_bytes(6, 'big')),
                    b'777777777777',
                ),
            ),
        )
        for size_field in size_fields
    },
    'a size of one digit': (changed(124, b'3' + bytes(11)), [OF_1]),
    'a folder without a valid size': (header('d', b'0000000128x\0', kind=b'5') + tar_of(ONE), [bad(Problem.DAMAGED)]),
    'a checksum of seven digits': (changed(0, b'', b'%07o\0'), [OF_1]),
    'another magic': (changed(257, b'x'), [bad(Problem.DAMAGED)]),
    **{
        f'{blocks} blocks': (TWO[: int(blocks * BLOCK)], found)
        for blocks, found in (
            *((0, [NO_END]), (1 / BLOCK, [NO_END]), (0.5, [NO_END]), (1.1, [TRUNCATED])),
            *(
                (3, [bad(Problem.NO_LABEL), NO_END]),
                (3.5, [bad(Problem.NO_LABEL), NO_END]),
                (4, [TRUNCATED]),
                (5, [A, NO_END]),
                (7, [A, TRUNCATED]),
            ),
            *((10, [A, B, NO_END]), (11, [A, B])),
        )
    },
    # The shard ends with its last file.
    'no end': (member('1.cls', b'3') + member('1.jpg', b'x' * BLOCK), [fine(3, b'x' * BLOCK), NO_END]),
    'data after the end': (TWO + TWO, [A, B, bad(Problem.AFTER_END)]),
    'a damaged header': (DAMAGED, [A, bad(Problem.DAMAGED)]),
    'no tar file': (b'\x1f\x8b' + bytes(range(256)) * 12 + DAMAGED, [bad(Problem.DAMAGED)]),
    'a sparse file': (header('1.jpg', SIZE, b'x' * 700, tarfile.GNUTYPE_SPARSE) + DAMAGED, [bad(Problem.DAMAGED)]),
}

BEFORE, AFTER = ([(f'{key}.jpg', b'fine'), (f'{key}.cls', b'5')] for key in ('before', 'after'))
PROBLEMS: List[Tuple[Problem, Files]] = [
    (Problem.NO_LABEL, [('1.jpg', b'one')]),
    (Problem.NO_IMAGE, [('1.cls', b'1')]),
    (Problem.NO_IMAGE, [('1.jpg', b''), ('1.cls', b'1')]),
    (Problem.IMAGES, [('1.jpg', b'one'), ('1.png', b'one'), ('1.cls', b'1')]),
    (Problem.LABELS, [('1.jpg', b'one'), ('1.cls', b'1'), ('1.CLS', b'1')]),
    (Problem.NO_IMAGE, [('1.seg.png', b'one'), ('1.cls', b'1')]),
    *[(Problem.BAD_LABEL, [('1.jpg', b'one'), ('1.cls', each)]) for each in (b'', b'cat', b'-1', b'1 2', b'9' * 19)],
    # The key ends at the first dot of the name.
    (Problem.NO_IMAGE, [('1.img.jpg', b'one'), ('1.txt', b'1')]),
    (Problem.NO_IMAGE, [('1.001.jpg', b'one'), ('1.001.cls', b'1')]),
    (Problem.NO_IMAGE, [('1.001.cls', b'1')]),
]
for problem, files in PROBLEMS:
    found = [fine(5, b'fine'), bad(problem), fine(5, b'fine')]
    SHARDS[f'{problem.name}: {files}'] = tar_of([*BEFORE, *files, *AFTER]), found


@pytest.mark.parametrize('kind', SHARDS)
def test_shard__is_read_alike_in_python_and_in_the_graph(kind: str, reader: Reader) -> None:
    shard, found = SHARDS[kind]
    assert both(reader, shard) == found


LEFT_OUT = [
    *[(name, b'text' * 200) for name in ('README', '.jpg', 'a.b/c', 'x/._1.jpg', '._1.cls', '__meta__/a')],
    *[(name, b'{}') for name in ('metadata.json', '1.b.json', 'index.jpg.txt', 'jpg.x')],
]


def test_files_of_no_sample__are_left_out(reader: Reader) -> None:
    samples = [[(f'{key}.jpg', b'j' * 700), (f'{key}.cls', b'%d' % key)] for key in range(1, 4)]
    others = LEFT_OUT * 4
    assert both(reader, tar_of(others)) == []
    shard = tar_of([*others, *samples[0], *others, *samples[1], *samples[2], *others])
    # Folders are not counted.
    shard = member('x', b'', tarfile.DIRTYPE) + shard
    assert both(reader, shard) == [fine(key, b'j' * 700) for key in range(1, 4)]
    with Shard(reader.path) as content:
        left_out = [member.name for each in content.everything() if not each.image for member in each.members]
    assert sorted(left_out) == sorted([name.encode() for name, _ in others] * 3)


@pytest.mark.parametrize('tar_format', TAR_FORMATS)
def test_hard_links__have_no_content(reader: Reader, tar_format: int) -> None:
    folder = '' if tar_format == tarfile.USTAR_FORMAT else 'd' * 120 + '/'
    link = b'-> ' + f'{folder}1.jpg'.encode()
    files = [(f'{folder}1.jpg', b'one'), (f'{folder}1.cls', b'1'), (f'{folder}2.jpg', link), (f'{folder}2.cls', b'2')]
    # A sample of links alone is refused, too.
    files += [(f'{folder}3.jpg', link), (f'{folder}3.cls', b'-> ' + b'x' * 90)]
    assert both(reader, tar_of(files, tar_format)) == [OF_1, bad(Problem.NO_IMAGE), bad(Problem.NO_IMAGE)]


JSON = {
    '{"label": 7}': 7,
    ' {\r\n\t"a": "x" , "label" :\n3 ,"b":[1, {"label": 9}]}\n': 3,
    '{"a": {"label": 9, "b": [[{}]]}, "label": 0}': 0,
    '{"a": "\\"label\\": 9, \\\\", "label": 5, "c": "}"}': 5,
    '{"b": "\u00e9\u732b", "labels": 1, "label": 123456789012345678}': 123456789012345678,
    '{"label": 1, "label": 2}': 2,
    '{"a": [[[[[1, {"label": 2, "b": 3}]]]]], "label": 4}': 4,
    **dict.fromkeys(
        (
            *('', '7', '=7', '[]', '{}', '[{"label": 7}]', '{"label": "7"}', '{"label": -7}', '{"label": 7.5}'),
            *('{"label": 7e1}', '{"label": null}', '{"label": [7]}', '{"a": {"label": 7}}', '{"a": "label", "b": 7}'),
            *('{"Label": 7}', '{"label": 7', '{"label": 1234567890123456789}', '{"a": "\\"label\\": 7"}'),
        ),
        None,
    ),
}


def test_label__is_read_from_the_file_of_the_flag(labelled_reader: Reader) -> None:
    is_json = bool(labelled_reader.label.key)
    texts = JSON if is_json else {' 7\n': 7, '0': 0, 'seven': None, '': None}
    files: List[Tuple[str, bytes]] = []
    for key, text in enumerate(texts):
        image, label = (f'{key}.jpg', b'image'), (f'{key}.{labelled_reader.label.extension}', text.encode())
        files += [(f'{key}.cls', b'99'), *[image, label][:: (-1) ** key]]
    found = both(labelled_reader, tar_of([*files, ('last.jpg', b'x')]))
    for text, sample, number in zip(texts, found, texts.values()):
        assert sample == (bad(Problem.BAD_LABEL) if number is None else fine(number, b'image')), text
        with contextlib.suppress(ValueError):
            parsed = json.loads(text)
            value = parsed.get('label') if isinstance(parsed, dict) else None
            assert not is_json or number == (value if isinstance(value, int) and 0 <= value < 10**18 else None), text
    assert found[-1] == bad(Problem.NO_LABEL)
    if is_json:
        # With more than 16 levels, no label is found, not even that of an inner object.
        for lists, expected in ((15, fine(4, b'one')), (16, bad(Problem.BAD_LABEL)), (40, bad(Problem.BAD_LABEL))):
            deep = b'{"a": %s{"label": 2, "b": 3}%s, "label": 4}' % (b'[' * lists, b']' * lists)
            assert both(labelled_reader, tar_of([('1.jpg', b'one'), ('1.json', deep)])) == [expected]
        latin = tar_of([('1.jpg', b'one'), ('1.json', b'{"a": "\xff", "label": 3}')])
        assert both(labelled_reader, latin) == [fine(3, b'one')]


@pytest.mark.parametrize('size', [3, 5])
def test_whole_content_of_another_size__is_an_error(size: int, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.tar').write_bytes(b'four')
    # Only shards on s3:// are loaded like this.
    read = tar_reader._one_piece(tf.constant(str(tmp_path / 'a.tar')), tf.constant(size, tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match=remote.ENDED_EARLY):
        evaluate(tf.data.make_one_shot_iterator(read).get_next())


@pytest.mark.nightly
def test_memory__of_small_images_stays_near_the_size_of_their_shard(tmp_path: pathlib.Path) -> None:
    """All blocks of the shard look like headers, and half are headers: parsing such shards takes the most memory."""
    files = [(f'{number:05d}.{end}', b'1') for number in range(15_000) for end in ('jpg', 'cls')]
    path = write_tar(tmp_path / 'a.tar', files)
    assert os.path.getsize(path) > 30_000_000
    program = (
        'import sys\nfrom compat import tf\n'
        'from tools.benchmarks.measurement import peak_bytes\n'
        'from data.tar import reader as tar_reader\n'
        'read = tar_reader.reader("", 1 << 23)(sys.argv[1], int(sys.argv[2]))\n'
        'samples = tf.data.make_one_shot_iterator(read.skip(14_999)).get_next()\n'
        'with tf.Session() as session:\n'
        '    session.run(tf.zeros([]))\n'
        '    before = peak_bytes()\n'
        '    assert session.run(samples).endswith(b"1")\n'
        'print(peak_bytes() - before)\n'
    )
    command = [sys.executable, '-c', program, path, str(os.path.getsize(path))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    assert int(done.stdout) < 140_000_000


def test_samples_parse_to_their_images_and_labels(photos: List[Photo]) -> None:
    parsed = tar_reader.parse(tf.constant(fine(7, photos[0].encoded)))
    assert [tensor.dtype for tensor in parsed] == [tf.string, tf.int64, tf.float32]
    encoded, label, boxes = evaluate(*parsed)
    assert (encoded, label, boxes.shape) == (photos[0].encoded, 7, (1, 0, 4))
    # A group.
    samples = [fine(number, photos[number].encoded) for number in (3, 1)]
    encoded, labels, _ = evaluate(*tar_reader.parse(tf.constant(samples), 5))
    assert (encoded.tolist(), labels.tolist()) == ([photos[3].encoded, photos[1].encoded], [8, 6])
    for serialized in (bad(Problem.IMAGES), [*samples, bad(Problem.IMAGES)]):
        with pytest.raises(tf.errors.InvalidArgumentError, match='several images'):
            evaluate(tar_reader.parse(tf.constant(serialized)).label)
