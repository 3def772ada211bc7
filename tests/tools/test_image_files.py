"""Finding image files by path and folder; the reasons why one cannot be used."""

import os
import pathlib
import struct
from typing import List

import pytest

from tests.support.commands import obeyed_permissions
from tests.support.images import saved
from tests.tools.test_image_header import CAT, JPEG, PNG
from tools.image_files import UnreadableError, find, listed, read, why_undecodable

NO_IMAGE = (
    'is not a JPEG, PNG, GIF, WebP, BMP or TIFF image, or its beginning is damaged; other formats must be converted: '
    'magick FILE FILE.jpg'
)
FILES = [
    *('b.jpg', 'a.JPEG', 'c.png', 'd.gif', 'notes.txt', '.hidden.jpg', 'sub/e.jpg', 'sub/f.tar'),
    *('.git/g.jpg', 'z/y/h.PNG'),
]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of FILES."""
    for name in FILES:
        path = tmp_path / 'images' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / 'images'


def inside(folder: pathlib.Path, paths: List[str]) -> List[str]:
    """Paths relative to a folder."""
    return [os.path.relpath(path, folder) for path in paths]


def test_find__takes_the_images_below_a_folder_in_order(folder: pathlib.Path) -> None:
    (folder / 'sub' / 'closed').mkdir(mode=0o300)
    with obeyed_permissions():
        found = find([str(folder)])
    assert found.problems == {f'{folder}/sub/closed': 'cannot be listed: Permission denied'}
    found.paths.remove(f'{folder}/sub/closed')
    assert inside(folder, found.paths) == ['a.JPEG', 'b.jpg', 'c.png', 'd.gif', 'sub/e.jpg', 'z/y/h.PNG']
    assert inside(folder, found.skipped) == ['notes.txt', 'sub/f.tar']


def test_find__takes_named_files_of_any_extension_once_in_the_given_order(folder: pathlib.Path) -> None:
    names = [str(folder / name) for name in ('notes.txt', 'sub', 'b.jpg', '.hidden.jpg', 'notes.txt')]
    assert inside(folder, find(names).paths) == ['notes.txt', 'sub/e.jpg', 'b.jpg', '.hidden.jpg']


def test_find__names_what_gives_no_image(folder: pathlib.Path) -> None:
    empty = folder / 'empty'
    empty.mkdir()
    names = [str(folder / 'none.jpg'), str(empty), 'gs://bucket/a.jpg']
    found = find(names)
    assert found.paths == names
    assert found.problems == {
        names[0]: 'no such file or folder',
        names[1]: 'no images in this folder',
        names[2]: 'remote images are not supported; copy it to this machine first',
    }


def test_read__refuses_broken_links_pipes_and_more_than_one_gibibyte(tmp_path: pathlib.Path) -> None:
    link = tmp_path / 'link.jpg'
    link.symlink_to(tmp_path / 'nowhere')
    assert find([str(link)]).paths == [str(link)]
    with pytest.raises(UnreadableError, match='cannot be read: No such file or directory'):
        read(str(link))
    os.mkfifo(str(tmp_path / 'a.jpg'))
    with pytest.raises(UnreadableError, match='is a named pipe; only regular files'):
        read(str(tmp_path / 'a.jpg'))
    (tmp_path / 'b.jpg').write_bytes(JPEG)
    assert read(str(tmp_path / 'b.jpg')) == JPEG
    with open(tmp_path / 'b.jpg', 'wb') as file:
        file.truncate(2**30 + 1)
    with pytest.raises(UnreadableError, match='has 1,073,741,825 bytes; at most 1,073,741,824 are allowed'):
        read(str(tmp_path / 'b.jpg'))


def test_listed__names_the_file_of_all_if_some_are_left_out() -> None:
    assert listed(['a', 'b', 'c'], 'all.tsv') == 'a, b, c'
    assert listed(['a', 'b', 'c', 'd'], 'all.tsv') == 'a, b, c and 1 more (all in all.tsv)'


def with_size(width: int, height: int) -> bytes:
    """A PNG with another size in its header."""
    return PNG[:16] + struct.pack('>II', width, height) + PNG[24:]


@pytest.mark.parametrize(
    ('encoded', 'expected'),
    [
        (b'', 'is empty'),
        (b'text', NO_IMAGE),
        (JPEG[:50], NO_IMAGE),
        (saved(CAT, 'PPM'), NO_IMAGE),
        (with_size(10_001, 10_000), 'has 10,001 x 10,000 pixels; at most 100,000,000 are allowed'),
        (with_size(10_000, 10_000), 'is a truncated or damaged PNG image (the reason)'),
        (saved(CAT.convert('P'), 'GIF'), 'is a damaged or animated GIF image (the reason)'),
        (saved(CAT.convert('L'), 'JPEG'), 'is a truncated or damaged JPEG, grey image (the reason)'),
    ],
)
def test_why_undecodable__gives_the_reason(encoded: bytes, expected: str) -> None:
    assert why_undecodable(encoded, 'the reason') == expected
