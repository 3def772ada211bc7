"""Writes the files of all commands: a reader sees the old content or the new, and only regular files are replaced."""

import contextlib
import errno
import os
import stat
import uuid
from typing import Iterable, Iterator, Union

from compat import tf
from compat.errors import CommandError
from compat.messages import full
from console import inputs

# The suffix of an output that is being written.
_UNFINISHED = '.unfinished'
# TensorFlow 1.15 collects its output to s3:// in a file in /tmp, which it names after the time in milliseconds. If
# threads or processes of a machine open two files within one millisecond, the files exchange their contents
# (https://github.com/tensorflow/tensorflow/issues/30598, of 2019).
_WRITES_TO_S3 = 3
# The disk or a quota is full, a file is larger than allowed, or the disk fails.
_OF_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def replaceable(path: str) -> str:
    """The path of the file that an output creates or replaces: the target, if it is a symbolic link.

    Raises CommandError if the path exists and is not a regular file, or cannot be followed.
    """
    if '://' in path:
        return path
    try:
        real = os.path.realpath(path)
        mode = os.stat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        # The error of writing names the missing folder.
        return real
    except (OSError, ValueError) as error:
        raise CommandError(f'{full(path)}: cannot be written: {getattr(error, "strerror", error)}.')
    if not stat.S_ISREG(mode):
        kind = inputs.kind_of(mode)
        raise CommandError(
            f'{full(path)}: cannot be written: it is {kind}; only files are replaced. Move it away, or '
            'name another file.'
        )
    return real


def check_is_no_input(path: str, inputs: Iterable[str]) -> None:
    """Raises CommandError if an output, or its unfinished file, would replace one of the files that the command reads.

    A hard link of such a file may be replaced: the file keeps its content under its other name.
    """
    read = {os.path.realpath(each) for each in inputs}
    for ending in ('', _UNFINISHED):
        if os.path.realpath(path) + ending in read:
            raise CommandError(
                f'{full(path + ending)}: is one of the files to read, and would be replaced. Name '
                'another file to write.'
            )


def move(unfinished: str, path: str) -> None:
    """Renames a complete file to its path, local or remote, which must be `replaceable`."""
    tf.io.gfile.rename(unfinished, replaceable(path), overwrite=True)


@contextlib.contextmanager
def unfinished_file(path: str, work_dir: str = '') -> Iterator[str]:
    """Yields a temporary path for an output. Then the file is moved to its own path, or removed if the block fails.

    The path, local or remote, must be `replaceable`. The unfinished file is in `work_dir`, or beside the output.
    """
    real = replaceable(path)
    # Several processes of a conversion may write the same file. Elsewhere, the next writer replaces a leftover file.
    unique = f'{os.path.basename(real)}.{uuid.uuid4().hex}{_UNFINISHED}'
    unfinished = os.path.join(work_dir, unique) if work_dir else f'{real}{_UNFINISHED}'
    if replaceable(unfinished) != unfinished and os.path.islink(unfinished):
        raise CommandError(f'{full(unfinished)}: is a link, and must be a new file. Remove it.')
    try:
        yield unfinished
        move(unfinished, real)
    except (Exception, KeyboardInterrupt) as error:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(unfinished)
        # The error of a write to an open file lacks its name.
        if isinstance(error, OSError) and error.filename is None and error.errno in _OF_WRITES:
            raise CommandError(f'{full(path)}: cannot be written: {error.strerror}.')
        raise


def write(path: str, content: Union[str, bytes], work_dir: str = '') -> None:
    """Writes a file; the arguments and errors are those of `unfinished_file`.

    Text is written as UTF-8. Surrogates, which names of files may contain and UTF-8 lacks, become escape sequences.
    A file in s3:// is read back, and written again if it differs (`_WRITES_TO_S3`).
    """
    encoded = content.encode(errors='backslashreplace') if isinstance(content, str) else content
    with unfinished_file(path, work_dir) as unfinished:
        for _ in range(_WRITES_TO_S3):
            with tf.io.gfile.GFile(unfinished, 'wb') as file:
                file.write(encoded)
            if not unfinished.startswith('s3://') or _content(unfinished) == encoded:
                return
        raise CommandError(
            f'{path}: cannot be written: {_WRITES_TO_S3} times, the file that was read back was another. Check that it '
            'may be read, and that no other process on this machine writes to s3://.'
        )


def _content(path: str) -> bytes:
    with tf.io.gfile.GFile(path, 'rb') as file:
        return bytes(file.read())
