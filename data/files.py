"""Reads and writes small files, local or remote."""

from typing import Union

from console import outputs
from data import remote


def write_whole(path: str, content: Union[str, bytes], work_dir: str = '') -> None:
    """Writes a file atomically: a reader sees the old content or the new. A local failure is a `tf.errors.OpError`.

    The unfinished file is in `work_dir`, by default beside it. Only regular files are replaced.
    """
    with remote.explained(path, remote.WRITE):
        outputs.write(path, content, work_dir)


def text_of(path: str) -> str:
    """The content of a file; empty if the file is missing."""
    return (remote.read(path) or b'').decode(errors='replace')
