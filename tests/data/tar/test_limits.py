"""The limits of tar shards: both readers accept the largest and refuse the next."""

import pathlib
import tarfile

import pytest

from data.tar.layout import BLOCK, Problem
from tests.data.tar.readers import Reader, bad, both, fine, header
from tests.support.tar_files import write_tar


@pytest.mark.parametrize(('label', 'number'), [(b'9' * 18, 10**18 - 1), (b' ' * 17 + b'7', 7), (b'0' * 18, 0)])
def test_label__has_up_to_18_bytes(reader: Reader, label: bytes, number: int, tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'a.tar', [('1.jpg', b'one'), ('1.cls', label)])
    assert both(reader, path) == [fine(number, b'one')]
    path = write_tar(tmp_path / 'a.tar', [('1.jpg', b'one'), ('1.cls', label + b'\n')])
    assert both(reader, path) == [bad(Problem.BAD_LABEL)]


@pytest.mark.parametrize('kind', [b'1', b'2', b'3', b'4', b'6'])
def test_link_or_device__has_no_content_whatever_its_size(reader: Reader, kind: bytes, tmp_path: pathlib.Path) -> None:
    block = bytearray(header('1.jpg', b'%011o\0' % 700))
    block[156:157] = kind
    block[148:156] = b' ' * 8
    block[148:156] = b'%06o\0 ' % sum(block)
    after = pathlib.Path(write_tar(tmp_path / 'b.tar', [('2.jpg', b'two'), ('2.cls', b'2')])).read_bytes()
    (tmp_path / 'a.tar').write_bytes(block + after)
    assert both(reader, str(tmp_path / 'a.tar')) == [fine(2, b'two')]


@pytest.mark.parametrize(('size', 'is_allowed'), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_extension_header__has_up_to_a_mebibyte(
    reader: Reader, size: int, is_allowed: bool, tmp_path: pathlib.Path
) -> None:
    after = pathlib.Path(write_tar(tmp_path / 'b.tar', [('2.jpg', b'two'), ('2.cls', b'2')])).read_bytes()
    comment = b'%d comment=' % size
    record = comment + b'c' * (size - len(comment) - 1) + b'\n'
    block = bytearray(header('x', b'%011o\0' % size))
    block[156:157] = tarfile.XHDTYPE
    block[148:156] = b' ' * 8
    block[148:156] = b'%06o\0 ' % sum(block)
    (tmp_path / 'a.tar').write_bytes(block + record + b'\0' * (-size % BLOCK) + after)
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
