"""Tests that outputs replace only regular files."""

import os
import pathlib
import resource
import socket
import stat
from typing import Any, Callable, Dict, Tuple

import pytest

from compat.errors import CommandError
from console import outputs
from data import files
from tests.support.spellings import spellings


def _socket(path: pathlib.Path) -> None:
    # The path of a socket has at most 107 bytes.
    before = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as new:
        new.bind(path.name)
    os.chdir(before)


def _device(path: pathlib.Path) -> None:
    # A new device, if this user may make one: a fault in the program must not replace the machine's own.
    try:
        os.mknod(str(path), stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        path.symlink_to('/dev/full')


SPECIAL: Dict[str, Tuple[Callable[[pathlib.Path], Any], str]] = {
    'device': (_device, 'it is a device; only files'),
    'pipe': (os.mkfifo, 'it is a named pipe; only files'),
    'socket': (_socket, 'it is a socket; only files'),
    'folder': (pathlib.Path.mkdir, 'it is a folder; only files'),
    'loop': (lambda path: path.symlink_to(path.name), 'Too many levels of symbolic links'),
}


def state(path: pathlib.Path) -> Tuple[int, int]:
    """The kind and the inode of a path; a link is not followed."""
    found = os.lstat(str(path))
    return stat.S_IFMT(found.st_mode), found.st_ino


@pytest.mark.parametrize('kind', SPECIAL)
def test_special_files__are_refused_and_stay(kind: str, tmp_path: pathlib.Path) -> None:
    path, (make, reason) = tmp_path / 'out', SPECIAL[kind]
    make(path)
    link = tmp_path / 'link'
    link.symlink_to('out')
    before = state(path), state(link)
    for each in (path, link):
        writes: Tuple[Tuple[Any, ...], ...] = (
            (files.write_whole, str(each), 'new'),
            (files.append_line, str(each), {}),
            (outputs.move, str(tmp_path / 'absent'), str(each)),
        )
        for write, *arguments in writes:
            with pytest.raises(CommandError, match=f'cannot be written: {reason}'):
                write(*arguments)
    assert (state(path), state(link)) == before and sorted(os.listdir(str(tmp_path))) == ['link', 'out']


def test_links_to_files__stay_and_their_targets_are_replaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'folder').mkdir()
    target, link, dangling = tmp_path / 'folder' / 'target', tmp_path / 'link', tmp_path / 'dangling'
    target.write_text('old')
    link.symlink_to('folder/target')
    dangling.symlink_to('folder/new')
    files.write_whole(str(link), 'new')
    files.write_whole(str(dangling), 'also new')
    assert link.is_symlink() and target.read_text() == 'new' and not target.is_symlink()
    assert (tmp_path / 'folder' / 'new').read_text() == 'also new'
    assert sorted(os.listdir(str(tmp_path / 'folder'))) == ['new', 'target']


def test_failed_output__leaves_the_old_file_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'page.html'
    path.write_text('old')
    with pytest.raises(KeyboardInterrupt), outputs.unfinished_file(str(path)) as unfinished:
        pathlib.Path(unfinished).write_text('half')
        raise KeyboardInterrupt
    assert path.read_text() == 'old' and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize('target', ['/dev/full', 'mine'])
def test_unfinished_output__is_not_written_through_a_link(target: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'mine').write_text('mine')
    (tmp_path / 'page.html.unfinished').symlink_to(target)
    with pytest.raises(CommandError, match=r'is a link|it is a device'):
        files.write_whole(str(tmp_path / 'page.html'), 'page')
    assert (tmp_path / 'mine').read_text() == 'mine' and not (tmp_path / 'page.html').exists()


def test_write_beyond_a_limit__names_the_path(tmp_path: pathlib.Path) -> None:
    path, (_, hard) = tmp_path / 'out', resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(CommandError) as error, outputs.unfinished_file(str(path)) as unfinished:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        try:
            with open(unfinished, 'wb', buffering=0) as file:
                file.write(b'x' * 10)
                file.write(b'x')
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert str(error.value) == f'{path}: cannot be written: File too large.'
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match='Errno 2'), outputs.unfinished_file(str(path)):
        os.stat(str(tmp_path / 'absent'))


def test_input__is_refused_as_an_output_under_any_name(tmp_path: pathlib.Path) -> None:
    path, other = tmp_path / 'a' / 'photo.jpg', tmp_path / 'b.jpg'
    for each in (path, other):
        each.parent.mkdir(exist_ok=True)
        each.write_text('photo')
    names = [str(path), *spellings(str(path), tmp_path)]
    for output in names:
        for read in names:
            with pytest.raises(CommandError, match='is one of the files to read, and would be replaced'):
                outputs.check_is_no_input(output, [str(other), read])
    # The name of the unfinished file.
    with pytest.raises(CommandError, match=r'page\.unfinished: is one of'):
        outputs.check_is_no_input(str(tmp_path / 'page'), [str(tmp_path / 'page.unfinished')])
    outputs.check_is_no_input(str(tmp_path / 'a' / 'b.jpg'), [str(path), str(other)])


def test_hard_link_to_an_input__is_replaced_and_the_input_stays(tmp_path: pathlib.Path) -> None:
    path, link = tmp_path / 'photo.jpg', tmp_path / 'page.html'
    path.write_text('photo')
    os.link(str(path), str(link))
    outputs.check_is_no_input(str(link), [str(path)])
    outputs.write(str(link), 'page')
    assert (path.read_text(), link.read_text()) == ('photo', 'page')
