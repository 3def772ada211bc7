"""Files with a JSON object per line, local or remote."""

import contextlib
import json
from typing import Any, Callable, Dict, List, TypeVar

from console import outputs
from console.json_content import from_json
from console.log import logger
from console.tensorflow_versions import tf
from data import remote
from data.files import text_of

_Record = TypeVar('_Record')


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
    """The records in a file, each made by `record_of` of a line's JSON object. Damaged lines are skipped and logged."""
    found = []
    lines = [line for line in text_of(path).split('\n') if line]
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(from_json(line, record_of))
    if len(found) < len(lines):
        logger.info('%s: skipped %d of %d lines, which are damaged', path, len(lines) - len(found), len(lines))
    return found
