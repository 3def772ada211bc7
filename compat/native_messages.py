"""Separates messages that C libraries write to standard error from this program's own.

libjpeg and TensorFlow report damaged images there, without the image's name.
"""

import contextlib
import os
import sys
import tempfile
import threading
from typing import Any, Callable, Iterator, Optional, TextIO, Tuple, TypeVar, cast

_STANDARD_ERROR = 2
_Result = TypeVar('_Result')

_lock = threading.Lock()
# The descriptor of the file that receives the messages; None outside `captured`.
_file: Optional[int] = None


class _Stream:
    """Python's standard error during `captured`; afterwards, it forwards to the original stream.

    Modules that are loaded in the block may keep a reference to it, as TensorFlow's log does.
    """

    def __init__(self, target: TextIO):
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@contextlib.contextmanager
def captured() -> Iterator[None]:
    """Keeps native messages off the screen during the block; Python's standard error stays on the screen."""
    global _file
    if _file is not None:
        yield
        return
    before = sys.stderr
    before.flush()
    screen = os.dup(_STANDARD_ERROR)
    shown = _Stream(before)
    try:
        with tempfile.TemporaryFile() as file:
            if _descriptor() == _STANDARD_ERROR:
                shown.target = os.fdopen(os.dup(screen), 'w', 1, before.encoding, before.errors)
                sys.stderr = cast(TextIO, shown)
            os.dup2(file.fileno(), _STANDARD_ERROR)
            _file = file.fileno()
            try:
                yield
            finally:
                _file = None
                os.dup2(screen, _STANDARD_ERROR)
                if shown.target is not before:
                    shown.target.close()
                    shown.target = sys.stderr = before
    finally:
        os.close(screen)


def during(call: Callable[[], _Result]) -> Tuple[_Result, str]:
    """The result of a call and the native messages written during it; one thread at a time."""
    with _lock, captured():
        assert _file is not None
        os.ftruncate(_file, 0)
        os.lseek(_file, 0, os.SEEK_SET)
        result = call()
        size = os.fstat(_file).st_size
        return result, os.pread(_file, size, 0).decode(errors='replace') if size else ''


def _descriptor() -> Optional[int]:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        return sys.stderr.fileno()
    return None
