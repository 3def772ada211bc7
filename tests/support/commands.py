"""Runs the commands of `python -m` in this process, also within limits of the system."""

import contextlib
import ctypes
import io
import resource
import sys
from typing import Any, Callable, Iterator, NamedTuple
from unittest import mock


class Done(NamedTuple):
    """A finished command, with the fields of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def run(main: Callable[[], int], *arguments: Any) -> Done:
    """Runs a command that parses `sys.argv`."""
    out, err = io.StringIO(), io.StringIO()
    given = mock.patch.object(sys, 'argv', ['command', *map(str, arguments)])
    with given, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as end:  # argparse's
            code = int(end.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limits the files that this process writes to `size` bytes, as on a nearly full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def obeyed_permissions() -> Iterator[None]:
    """Makes file permissions apply to this thread even if it runs as root."""
    libc = ctypes.CDLL(None, use_errno=True)
    # linux/capability.h: version 3 and this thread; then effective, permitted and inheritable sets of 32 bits, twice.
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    before = (ctypes.c_uint32 * 6)()
    assert libc.capget(head, before) == 0
    override, read_and_search = 1 << 1, 1 << 2
    without = (ctypes.c_uint32 * 6)(before[0] & ~(override | read_and_search), *before[1:])
    assert libc.capset(head, without) == 0
    try:
        yield
    finally:
        assert libc.capset(head, before) == 0
