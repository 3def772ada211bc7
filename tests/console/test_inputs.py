"""Tests that only regular files of a bounded size are read."""

import os
import pathlib
import socket
from typing import Any

import pytest

from console import inputs


def test_read__refuses_what_is_no_regular_file(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo('pipe')
    os.mkdir('folder')
    pathlib.Path('link').symlink_to('pipe')
    with socket.socket(socket.AF_UNIX) as new:
        new.bind('socket')
        for path, kind in (
            ('pipe', 'a named pipe'),
            ('link', 'a named pipe'),
            ('folder', 'a folder'),
            ('socket', 'a socket'),
            ('/dev/zero', 'a device'),
        ):
            with pytest.raises(OSError) as error:
                inputs.read(path)
            assert error.value.strerror == f'it is {kind}; only regular files are read'
            assert error.value.filename == path


def test_read__refuses_more_bytes_than_allowed(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    path = tmp_path / 'file'
    path.write_bytes(b'12345')
    assert inputs.read(str(path), 5) == b'12345'
    with pytest.raises(OSError, match='it has 5 bytes; at most 4 are allowed'):
        inputs.read(str(path), 4)
    # A sparse file takes no space.
    os.truncate(str(path), 10 << 40)
    with pytest.raises(OSError, match='it has 10,995,116,277,760 bytes'):
        inputs.read(str(path))
    # This file has content, but the size 0.
    with pytest.raises(OSError, match='it has 5 bytes; at most 4 are allowed'):
        inputs.read('/proc/self/status', 4)
    with pytest.raises(FileNotFoundError):
        inputs.read(str(tmp_path / 'absent'))
