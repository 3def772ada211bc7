"""Tar shards written by tarfile, webdataset and GNU tar: the input pipeline and Python read the same samples."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from typing import Any, List, Tuple
from unittest import mock

import pytest
import webdataset

from console.tensorflow_versions import tf
from data import remote
from data.tar import reader as tar_reader
from data.tar.layout import BLOCK, Problem, label_of
from data.tar.shard import Shard
from tests.data.tar.readers import END, Reader, bad, both, fine, header
from tests.support.graphs import evaluate
from tests.support.photos import Photo
from tests.support.tar_files import Files, write_tar

SIZE = b'%011o\0' % 700
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
# Too long for one field of a header, and for two fields.
FOLDERS = ['', 'd' * 80 + '/' + 'e' * 60 + '/', 'f' * 300 + '/']


@pytest.mark.parametrize('tar_format', FORMATS)
def test_samples__in_all_formats_of_names(reader: Reader, tar_format: int, tmp_path: pathlib.Path) -> None:
    folders = FOLDERS[: 2 if tar_format == tarfile.USTAR_FORMAT else 3]
    images = [bytes([i]) * (600 * i + 1) for i in range(9)]
    files: List[Tuple[str, bytes]] = []
    for i, image in enumerate(images):
        key = f'{folders[i % len(folders)]}{i}'
        files += [(f'{key}.{["jpg", "JPEG", "png", "Ppm"][i % 4]}', image), (f'{key}.cls', b'%d\n' % i)][:: (-1) ** i]
    # In the pax format, a fractional time adds an extension header to each file.
    path = write_tar(tmp_path / 'a.tar', files, tar_format, mtime=1.5)
    assert both(reader, path) == [fine(i, image) for i, image in enumerate(images)]


def test_samples__written_by_webdataset(reader: Reader, tmp_path: pathlib.Path, photos: List[Photo]) -> None:
    for name in ('a.tar', 'b.tar'):
        with webdataset.TarWriter(str(tmp_path / name), encoder=name == 'a.tar') as writer:
            for photo in photos:
                label: Any = photo.label if name == 'a.tar' else b'%d' % photo.label
                extra: Any = {'of': 'photo'} if name == 'a.tar' else b'{}'
                writer.write({'__key__': f'p/{photo.label:06d}', 'jpg': photo.encoded, 'json': extra, 'cls': label})
        assert both(reader, str(tmp_path / name)) == [fine(photo.label, photo.encoded) for photo in photos]


def test_extra_files_and_folders__are_ignored(reader: Reader, tmp_path: pathlib.Path) -> None:
    names = ['x', 'x/1.json', 'x/1.jpg', 'old/', 'x/1.seg.png', 'x/1.cls', 'x/1.txt']
    kinds = {'x': tarfile.DIRTYPE, 'old/': tarfile.AREGTYPE}
    contents = {'x/1.jpg': b'one', 'x/1.seg.png': b'segments', 'x/1.cls': b' 7 '}
    members = [(name, contents.get(name, b''), kinds.get(name, tarfile.REGTYPE)) for name in names]
    path = tmp_path / 'a.tar'
    path.write_bytes(b''.join(header(name, b'%011o\0' % len(c), c, kind) for name, c, kind in members) + END)
    assert both(reader, str(path)) == [fine(7, b'one')]


@pytest.mark.parametrize(
    ('files', 'problem'),
    [
        ([('1.jpg', b'one')], Problem.NO_LABEL),
        ([('1.cls', b'1')], Problem.NO_IMAGE),
        ([('1.jpg', b''), ('1.cls', b'1')], Problem.NO_IMAGE),
        ([('1.jpg', b'one'), ('1.png', b'one'), ('1.cls', b'1')], Problem.IMAGES),
        ([('1.jpg', b'one'), ('1.cls', b'1'), ('1.CLS', b'1')], Problem.LABELS),
        ([('1.seg.png', b'one'), ('1.cls', b'1')], Problem.NO_IMAGE),
        *[
            ([('1.jpg', b'one'), ('1.cls', label)], Problem.BAD_LABEL)
            for label in (b'', b'cat', b'-1', b'1 2', b'9' * 19)
        ],
        # The key ends at the first dot of the name.
        ([('1.img.jpg', b'one'), ('1.txt', b'1')], Problem.NO_IMAGE),
        ([('1.001.jpg', b'one'), ('1.001.cls', b'1')], Problem.NO_IMAGE),
        ([('1.001.cls', b'1')], Problem.NO_IMAGE),
    ],
)
def test_unusable_sample__has_its_position(
    reader: Reader, files: Files, problem: Problem, tmp_path: pathlib.Path
) -> None:
    around = [[(f'{key}.jpg', b'fine'), (f'{key}.cls', b'5')] for key in ('before', 'after')]
    path = write_tar(tmp_path / 'a.tar', [*around[0], *files, *around[1]])
    assert both(reader, path) == [fine(5, b'fine'), bad(problem), fine(5, b'fine')]


LEFT_OUT = [
    *[(name, b'text' * 200) for name in ('README', '.jpg', 'a.b/c', 'x/._1.jpg', '._1.cls', '__meta__/a')],
    *[(name, b'{}') for name in ('metadata.json', '1.b.json', 'index.jpg.txt', 'jpg.x')],
]


def test_files_of_no_sample__are_left_out(reader: Reader, tmp_path: pathlib.Path) -> None:
    samples = [[(f'{key}.jpg', b'j' * 700), (f'{key}.cls', b'%d' % key)] for key in range(1, 4)]
    others = LEFT_OUT * 4
    path = write_tar(tmp_path / 'a.tar', [*others, *samples[0], *others, *samples[1], *samples[2], *others])
    assert both(reader, path) == [fine(key, b'j' * 700) for key in range(1, 4)]
    assert both(reader, write_tar(tmp_path / 'b.tar', others)) == []
    with Shard(path) as shard:
        left_out = [member.name for each in shard.everything() if not each.image for member in each.members]
    assert sorted(left_out) == sorted([name.encode() for name, _ in others] * 3)


def test_files_without_a_key__do_not_divide_a_sample(reader: Reader, tmp_path: pathlib.Path) -> None:
    # As macOS's tar writes them, with a file of attributes before each file.
    names = ['._1.jpg', '1.jpg', 'README', '._1.cls', '1.cls', '._2.jpg', '2.jpg', '._2.cls', '2.cls']
    path = write_tar(tmp_path / 'a.tar', [(name, b'%d' % (number % 7)) for number, name in enumerate(names)])
    assert both(reader, path) == [fine(4, b'1'), fine(1, b'6')]
    # A file with another key does.
    files = [('1.jpg', b'one'), ('meta.json', b'{}'), ('1.cls', b'1')]
    assert both(reader, write_tar(tmp_path / 'b.tar', files)) == [bad(Problem.NO_LABEL), bad(Problem.NO_IMAGE)]


def with_links(path: pathlib.Path, files: Files, tar_format: int = tarfile.USTAR_FORMAT) -> str:
    """Writes a tar file, in which a content of `-> NAME` is a hard link to that name."""
    with tarfile.open(str(path), 'w', format=tar_format) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            if content.startswith(b'-> '):
                member.type, member.linkname, content = tarfile.LNKTYPE, content[3:].decode(), b''
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize('tar_format', FORMATS)
def test_hard_links__have_the_content_of_the_last_file_of_that_name_before(
    reader: Reader, tar_format: int, tmp_path: pathlib.Path
) -> None:
    folder = '' if tar_format == tarfile.USTAR_FORMAT else 'd' * 120 + '/'
    one, two, three = (letter * 3000 for letter in (b'1', b'2', b'3'))
    files = [
        *((f'{folder}1.jpg', one), (f'{folder}1.cls', b'1')),
        # Far away from the first sample, for windows of few blocks.
        *((f'{folder}2.jpg', b'-> ' + f'{folder}1.jpg'.encode()), (f'{folder}2.cls', b'2')),
        *(('README', two), ('3.cls', b'-> ' + f'{folder}1.cls'.encode()), ('3.jpg', b'-> README')),
        # An image as a label, and a link to no file. Neither is a link to a link or to a later file one.
        *(('4.jpg', three), ('4.cls', b'-> 4.jpg'), ('5.jpg', b'-> 9.jpg'), ('5.cls', b'5')),
        *(('6.jpg', two), ('6.cls', b'-> 3.cls'), ('9.jpg', three), ('9.cls', b'-> ' + f'{folder}2.cls'.encode())),
        # The last of two files, and links beside their files.
        *(('4.jpg', one), ('4.cls', b'4'), ('10.jpg', b'-> 4.jpg'), ('10.cls', b'-> 4.cls')),
        # An empty file before the first one of a window.
        *(('11.txt', b''), ('12.jpg', one), ('12.cls', b'-> 11.txt')),
    ]
    path = with_links(tmp_path / 'a.tar', files, tar_format)
    assert both(reader, path) == [
        *(fine(1, one), fine(2, one), fine(1, two), bad(Problem.BAD_LABEL), bad(Problem.NO_IMAGE)),
        *(bad(Problem.NO_LABEL), fine(2, three), fine(4, one), fine(4, one), bad(Problem.BAD_LABEL)),
    ]


@pytest.fixture(scope='session', params=['txt', 'json:label'])
def labelled_reader(request: Any, tmp_path_factory: Any) -> Reader:
    with mock.patch.multiple(tar_reader, PIECE=700, _CHUNK=100):
        return Reader(str(tmp_path_factory.mktemp('reader') / 'train-00000.tar'), label_of(request.param))


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


def test_label__in_another_file(labelled_reader: Reader, tmp_path: pathlib.Path) -> None:
    is_json = bool(labelled_reader.label.key)
    texts = JSON if is_json else {' 7\n': 7, '0': 0, 'seven': None, '': None}
    files: List[Tuple[str, bytes]] = []
    for key, text in enumerate(texts):
        image, label = (f'{key}.jpg', b'image'), (f'{key}.{labelled_reader.label.extension}', text.encode())
        files += [(f'{key}.cls', b'99'), *[image, label][:: (-1) ** key]]
    path = write_tar(tmp_path / 'a.tar', [*files, ('last.jpg', b'x')])
    found = both(labelled_reader, path)
    for text, sample, number in zip(texts, found, texts.values()):
        assert sample == (bad(Problem.BAD_LABEL) if number is None else fine(number, b'image')), text
        with contextlib.suppress(ValueError):
            parsed = json.loads(text)
            value = parsed.get('label') if isinstance(parsed, dict) else None
            assert not is_json or number == (value if isinstance(value, int) and 0 <= value < 10**18 else None), text
    assert found[-1] == bad(Problem.NO_LABEL)
    extension = labelled_reader.label.extension
    label = (f'1.{extension}', b'{"label": 7}' if is_json else b'7')
    linked = [('2.jpg', b'two'), (f'2.{extension}', b'-> ' + label[0].encode())]
    path = with_links(tmp_path / 'links.tar', [('1.jpg', b'one' * 300), label, *linked])
    assert both(labelled_reader, path) == [fine(7, b'one' * 300), fine(7, b'two')]
    if is_json:
        # More levels than are removed: not the label of an inner object.
        deep = b'{"a": %s{"label": 2, "b": 3}%s, "label": 4}' % (b'[' * 40, b']' * 40)
        path = write_tar(tmp_path / 'deep.tar', [('1.jpg', b'one'), ('1.json', deep)])
        assert both(labelled_reader, path) == [bad(Problem.BAD_LABEL)]
        path = write_tar(tmp_path / 'b.tar', [('1.jpg', b'one'), ('1.json', b'{"a": "\xff", "label": 3}')])
        assert both(labelled_reader, path) == [fine(3, b'one')]


@pytest.mark.parametrize('size', [3, 5])
def test_whole_content_of_another_size__is_an_error(size: int, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.tar').write_bytes(b'four')
    # As from s3://, the only shards that are loaded whole.
    read = tar_reader._one_piece(tf.constant(str(tmp_path / 'a.tar')), tf.constant(size, tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match=remote.ENDED_EARLY):
        evaluate(tf.data.make_one_shot_iterator(read).get_next())


@pytest.mark.parametrize(
    ('size_field', 'found'),
    [
        (b'%011o\0' % 700, True),
        (b'%011o ' % 700, True),
        (b'%11o\0' % 700, True),
        (b'%012o' % 700, True),
        (b'\x80' + (700).to_bytes(11, 'big'), True),
        (b'0000000128x\0', False),
        (b'\x80\0\0\1\0' + (700).to_bytes(7, 'big'), False),
        (b'\x80' + b'\1' * 11, False),
        (b'\xff' * 12, False),
        (b'\x80\0\0\0\0\x7f' + b'\xff' * 6, None),
        (b'777777777777', None),
    ],
)
def test_sizes_in_octal_and_binary(reader: Reader, size_field: bytes, found: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.tar'
    path.write_bytes(header('1.jpg', size_field, b'x' * 700) + header('1.cls', b'%011o\0' % 1, b'3') + END)
    assert both(reader, str(path)) == [
        fine(3, b'x' * 700) if found else bad(Problem.TRUNCATED if found is None else Problem.DAMAGED)
    ]


def pax(**said: str) -> bytes:
    return tarfile.TarInfo._create_pax_generic_header(said, b'x', 'utf-8')  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ('extension', 'name'),
    [
        # A record's value that looks like a record is not one.
        (pax(comment='a\n14 path=9.jpg\n'), '1.jpg'),
        (pax(comment=' path=9.jpg\n'), '1.jpg'),
        # Sizes in pax headers are not read.
        (pax(size='9' * 18), '1.jpg'),
        (pax(path='9.cls', comment='x', size='700').replace(b'path=9.cls', b'path=1.jpg'), '?'),
        (pax(**{f'comment{i:02}': '' for i in range(99)}, path='1.jpg'), '?'),
        (header('x', b'%011o\0' % 14, b'99 path=9.jpg\n', tarfile.XHDTYPE), '1.jpg'),
    ],
    ids=['record as a value', 'value without a length', 'size', 'several records', '100 records', 'wrong length'],
)
def test_pax_records__are_parsed_in_order(reader: Reader, extension: bytes, name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.tar'
    path.write_bytes(extension + header(name, SIZE, b'x' * 700) + header('1.cls', b'%011o\0' % 1, b'3') + END)
    assert both(reader, str(path)) == [fine(3, b'x' * 700)]


def test_shard_within_a_shard__is_content(reader: Reader, tmp_path: pathlib.Path) -> None:
    inner = write_tar(tmp_path / 'inner.tar', [('9.jpg', b'nine'), ('9.cls', b'9')], tarfile.PAX_FORMAT, mtime=0.5)
    content = pathlib.Path(inner).read_bytes()
    path = write_tar(tmp_path / 'a.tar', [('1.jpg', content), ('1.cls', b'1'), ('2.cls', b'2'), ('2.jpg', content)])
    assert both(reader, path) == [fine(1, content), fine(2, content)]


def two_samples(tmp_path: pathlib.Path) -> bytes:
    """Blocks: 1.jpg 0 to 2, 1.cls 3 and 4, 2.jpg 5 to 7, 2.cls 8 and 9, then the end."""
    files = [('1.jpg', b'a' * 700), ('1.cls', b'1'), ('2.jpg', b'b' * 700), ('2.cls', b'2')]
    return pathlib.Path(write_tar(tmp_path / 'two.tar', files)).read_bytes()


A, B = fine(1, b'a' * 700), fine(2, b'b' * 700)


@pytest.mark.parametrize(
    ('blocks', 'found'),
    [
        (0, [bad(Problem.NO_END)]),
        (0.5, [bad(Problem.NO_END)]),
        (1.1, [bad(Problem.TRUNCATED)]),
        (3, [bad(Problem.NO_LABEL), bad(Problem.NO_END)]),
        (3.5, [bad(Problem.NO_LABEL), bad(Problem.NO_END)]),
        (4, [bad(Problem.TRUNCATED)]),
        (5, [A, bad(Problem.NO_END)]),
        (7, [A, bad(Problem.TRUNCATED)]),
        (10, [A, B, bad(Problem.NO_END)]),
        (11, [A, B]),
    ],
)
def test_truncated_shard__yields_its_complete_samples(
    reader: Reader, blocks: float, found: List[bytes], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / 'a.tar'
    path.write_bytes(two_samples(tmp_path)[: int(blocks * BLOCK)])
    assert both(reader, str(path)) == found


def test_damage_and_data_after_the_end__are_reported(reader: Reader, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.tar'
    content = bytearray(two_samples(tmp_path))
    path.write_bytes(content + content)
    assert both(reader, str(path)) == [A, B, bad(Problem.AFTER_END)]
    content[5 * BLOCK] ^= 1
    path.write_bytes(content)
    assert both(reader, str(path)) == [A, bad(Problem.DAMAGED)]
    for damaged in (b'\x1f\x8b' + bytes(range(256)) * 12, header('1.jpg', SIZE, b'x' * 700, tarfile.GNUTYPE_SPARSE)):
        path.write_bytes(damaged + content)
        assert both(reader, str(path)) == [bad(Problem.DAMAGED)]


@pytest.mark.slow
def test_memory__of_a_shard_of_small_images(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    """All blocks of the shard may be headers, and half of them are: parsing them takes the most memory."""
    files = [(f'{number:05d}.{end}', b'1') for number in range(15_000) for end in ('jpg', 'cls')]
    path = write_tar(tmp_path / 'a.tar', files)
    assert os.path.getsize(path) > 30_000_000
    program = (
        'import sys\nfrom console.tensorflow_versions import tf\n'
        'from benchmarks.measurement import peak_bytes\n'
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


def test_name_in_two_fields_of_a_header__is_joined(reader: Reader, tmp_path: pathlib.Path) -> None:
    folders = [f'{letter * 90}/{"c" * 90}' for letter in 'ab']
    files = [(f'{folders[0]}/1.jpg', b'one'), (f'{folders[0]}/1.cls', b'1'), (f'{folders[1]}/1.cls', b'2')]
    path = write_tar(tmp_path / 'a.tar', files, tarfile.USTAR_FORMAT)
    assert both(reader, path) == [fine(1, b'one'), bad(Problem.NO_IMAGE)]


@pytest.mark.parametrize(('label', 'number'), [(b'9' * 18, 10**18 - 1), (b' ' * 17 + b'7', 7), (b'0' * 18, 0)])
def test_label__has_up_to_18_bytes(reader: Reader, label: bytes, number: int, tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'a.tar', [('1.jpg', b'one'), ('1.cls', label)])
    assert both(reader, path) == [fine(number, b'one')]
    path = write_tar(tmp_path / 'a.tar', [('1.jpg', b'one'), ('1.cls', label + b'\n')])
    assert both(reader, path) == [bad(Problem.BAD_LABEL)]


@pytest.mark.parametrize('kind', [b'1', b'2', b'3', b'4', b'6'])
def test_link_or_device__has_no_content_whatever_its_size(reader: Reader, kind: bytes, tmp_path: pathlib.Path) -> None:
    after = pathlib.Path(write_tar(tmp_path / 'b.tar', [('2.jpg', b'two'), ('2.cls', b'2')])).read_bytes()
    (tmp_path / 'a.tar').write_bytes(header('1.jpg', SIZE, kind=kind) + after)
    assert both(reader, str(tmp_path / 'a.tar')) == [fine(2, b'two')]


@pytest.mark.parametrize(('size', 'is_allowed'), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_extension_header__has_up_to_a_mebibyte(
    reader: Reader, size: int, is_allowed: bool, tmp_path: pathlib.Path
) -> None:
    after = pathlib.Path(write_tar(tmp_path / 'b.tar', [('2.jpg', b'two'), ('2.cls', b'2')])).read_bytes()
    comment = b'%d comment=' % size
    record = comment + b'c' * (size - len(comment) - 1) + b'\n'
    (tmp_path / 'a.tar').write_bytes(header('x', b'%011o\0' % size, record, tarfile.XHDTYPE) + after)
    assert both(reader, str(tmp_path / 'a.tar')) == [fine(2, b'two') if is_allowed else bad(Problem.DAMAGED)]


def test_shard_that_ends_with_its_last_file__has_no_end(reader: Reader, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.tar'
    path.write_bytes(header('1.cls', b'%011o\0' % 1, b'3') + header('1.jpg', b'%011o\0' % BLOCK, b'x' * BLOCK))
    assert both(reader, str(path)) == [fine(3, b'x' * BLOCK), bad(Problem.NO_END)]


@pytest.mark.parametrize('kind', [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE])
def test_all_types_of_regular_files_are_read(reader: Reader, kind: bytes, tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'a.tar', [('1.jpg', b'one'), ('1.cls', b'1')], type=kind)
    assert both(reader, path) == [fine(1, b'one')]


@pytest.mark.parametrize(('letters', 'is_whole'), [(4096, True), (4097, False)])
def test_name__has_up_to_4096_bytes(reader: Reader, letters: int, is_whole: bool, tmp_path: pathlib.Path) -> None:
    key = 'n' * (letters - len('.jpg'))
    path = write_tar(tmp_path / 'a.tar', [(f'{key}.jpg', b'one'), (f'{key}.cls', b'1')], tarfile.GNU_FORMAT)
    # Without the last letter of jpg and of cls, there are neither an image nor a label.
    assert both(reader, path) == ([fine(1, b'one')] if is_whole else [])
