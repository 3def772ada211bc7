"""Reads, writes and hashes files, local or remote."""

import hashlib
from typing import Union

from console import outputs
from console.tensorflow_versions import tf
from data import remote

# Bytes of a file that are hashed at once.
_CHUNK = 1 << 20


def write_whole(path: str, content: Union[str, bytes], work_dir: str = '') -> None:
    """Writes a file atomically: a reader sees the old content or the new. A local failure is a `tf.errors.OpError`.

    The unfinished file is in `work_dir`, by default beside it. Only regular files are replaced.
    """
    with remote.explained(path, remote.WRITE):
        outputs.write(path, content, work_dir)


def text_of(path: str) -> str:
    """The content of a file; empty if the file is missing."""
    return (remote.read(path) or b'').decode(errors='replace')


def sha256(path: str) -> str:
    """The SHA-256 of a file's content: 64 hexadecimal digits. Raises errors as `remote.size`."""
    hashed = hashlib.sha256()
    with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
        for chunk in iter(lambda: file.read(_CHUNK), b''):
            hashed.update(chunk)
    return hashed.hexdigest()
