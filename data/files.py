"""Reads and writes small files, local or remote."""

from typing import Union

from console import outputs
from data import remote


def write_whole(path: str, content: Union[str, bytes], work_dir: str = '') -> None:
    """Writes a file atomically: a reader sees the old content or the new.

    The unfinished file is in `work_dir`, by default beside it.

    Raises:
      CommandError: something exists there that is no regular file.
      RemoteError: access to a remote file is denied, or the store cannot be reached.
      tf.errors.OpError: a local file cannot be written.
    """
    with remote.explained(path, remote.WRITE):
        outputs.write(path, content, work_dir)


def text_of(path: str) -> str:
    """The content of a file; empty if the file is missing."""
    return (remote.read(path) or b'').decode(errors='replace')
