"""Reads, writes and hashes files, local or remote; also files with a JSON object per line."""

import hashlib
import json
from typing import Any, Callable, Dict, List, TypeVar, Union

from compat import tf
from compat.log import logger
from compat.messages import shown
from console import outputs
from console.json_content import from_json
from data import remote

_Record = TypeVar('_Record')

# Bytes of a file that are hashed at once.
_CHUNK = 1 << 20
_LONGEST_REASON = 200


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
    """The SHA-256 of a file's content: 64 hexadecimal digits. Raises the errors of `remote.size`."""
    hashed = hashlib.sha256()
    with remote.opened(path) as file:
        for chunk in iter(lambda: file.read(_CHUNK), b''):
            hashed.update(chunk)
    return hashed.hexdigest()


def append_line(path: str, values: Dict[str, Any]) -> None:
    """Appends a JSON object as a line to a file, which may not exist yet."""
    line = json.dumps(values) + '\n'
    path = outputs.replaceable(path)
    before = text_of(path)
    # A process that was killed during a write leaves half a line.
    if before and not before.endswith('\n'):
        line = '\n' + line
    # TensorFlow appends to a remote file by reading and rewriting it. On s3://, it treats a denied read as the end of
    # the file.
    mode, text = ('w', before + line) if remote.is_remote(path) else ('a', line)
    with remote.explained(path, remote.WRITE), tf.io.gfile.GFile(path, mode) as file:
        file.write(text)


def read_lines(path: str, record_of: Callable[[Any], _Record]) -> List[_Record]:
    """The records in a file: `record_of` makes one from the JSON object of each line.

    Lines for which it raises ValueError are skipped and logged.
    """
    found, problems = [], []
    lines = [line for line in text_of(path).split('\n') if line]
    for number, line in enumerate(lines, 1):
        try:
            found.append(from_json(line, record_of))
        except ValueError as error:
            problems.append(f'{number}: {shown(error, _LONGEST_REASON)}')
    if problems:
        text = '%s: skipped %d of %d lines, which are damaged; the first is line %s'
        logger.info(text, path, len(problems), len(lines), problems[0])
    return found
