"""Opens users' local files: regular files of a bounded size only, so that no read blocks or fills the memory."""

import errno
import os
import stat
from typing import Optional

# The largest text or table, and the largest file of weights, that is read whole, in bytes.
TEXT_BYTES = 1 << 28
WEIGHTS_BYTES = 1 << 33

_KINDS = {stat.S_IFDIR: 'a folder', stat.S_IFIFO: 'a named pipe', stat.S_IFSOCK: 'a socket'}


def kind_of(mode: int) -> str:
    """The kind of a path that is not a regular file, for messages, by the mode that `os.stat` returns."""
    return _KINDS.get(stat.S_IFMT(mode), 'a device')


def fault_of(path: str, at_most: Optional[int] = None) -> str:
    """The reason not to read a local file: not regular, or larger than `at_most` bytes; empty if there is none.

    Links are followed. Raises OSError if there is no such file.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        return f'is {kind_of(status.st_mode)}; only regular files are read'
    return too_large(status.st_size, at_most)


def too_large(size: int, at_most: Optional[int]) -> str:
    """The reason not to read a file of a size in bytes; empty if there is none."""
    if at_most is None or size <= at_most:
        return ''
    return f'has {size:,} bytes; at most {at_most:,} are allowed'


def check(path: str, at_most: Optional[int] = None) -> None:
    """Raises OSError, whose `strerror` is the reason, if a local file does not exist or has a fault."""
    fault = fault_of(path, at_most)
    if fault:
        raise OSError(errno.EINVAL, f'it {fault}', path)


def read(path: str, at_most: int = TEXT_BYTES) -> bytes:
    """The content of a local file. Raises OSError as `check` does."""
    check(path, at_most)
    with open(path, 'rb') as file:
        # Files in /proc have more bytes than their reported size.
        content = file.read(at_most + 1)
    fault = too_large(len(content), at_most)
    if fault:
        raise OSError(errno.EFBIG, f'it {fault}', path)
    return content
