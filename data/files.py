"""Text files, local or remote: written whole, appended to, read line by line."""

import contextlib
import json
from typing import Any, Callable, Dict, List, TypeVar

import tensorflow as tf

from console.log import logger
from data import remote

_Record = TypeVar('_Record')


def write_whole(path: str, text: str) -> None:
    """Writes a file whole or not at all."""
    unfinished = f'{path}.unfinished'
    with remote.explained(path, remote.WRITE):
        with tf.io.gfile.GFile(unfinished, 'w') as file:
            file.write(text)
        tf.io.gfile.rename(unfinished, path, overwrite=True)


def append_line(path: str, values: Dict[str, Any]) -> None:
    """Adds a JSON object as a line to a file, which may be new."""
    line = json.dumps(values) + '\n'
    before = text_of(path)
    # A process that was killed while it wrote leaves half a line.
    if before and not before.endswith('\n'):
        line = '\n' + line
    # A remote file is written whole: to append, TensorFlow reads it again, and on s3:// takes a refusal for its end.
    mode, text = ('w', before + line) if remote.is_remote(path) else ('a', line)
    with remote.explained(path, remote.WRITE), tf.io.gfile.GFile(path, mode) as file:
        file.write(text)


def read_lines(path: str, record_of: Callable[[Any], _Record]) -> List[_Record]:
    """What a file holds, a JSON object a line; what is cut short, or of another kind, is passed over, and logged.

    Args:
      path: of the file; what is not there holds nothing.
      record_of: makes of an object what it stands for; raises AttributeError, TypeError or ValueError if it cannot.
    """
    found = []
    lines = [line for line in text_of(path).split('\n') if line]
    for line in lines:
        with contextlib.suppress(AttributeError, TypeError, ValueError, RecursionError):
            found.append(record_of(json.loads(line)))
    if len(found) < len(lines):
        logger.info('%s: %d of %d lines are spoilt, and passed over', path, len(lines) - len(found), len(lines))
    return found


def text_of(path: str) -> str:
    """The content of a file; nothing if it is not there."""
    return (remote.read(path) or b'').decode(errors='replace')
