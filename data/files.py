"""Reads and writes small files, local or remote: whole, and a JSON object per line. Parses JSON of any content."""

import contextlib
import json
import sys
from typing import Any, Callable, Dict, List, Tuple, Type, TypeVar, Union, get_type_hints

from console import outputs
from console.log import logger
from console.messages import shown
from console.tensorflow_versions import tf
from data import remote

_Record = TypeVar('_Record')
# The errors of parsing content that was not written by this program, and of using it.
_DAMAGED = (AttributeError, LookupError, MemoryError, OverflowError, TypeError, ValueError)
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_FLOAT = sys.float_info.max


def write_whole(path: str, content: Union[str, bytes], work_dir: str = '') -> None:
    """Writes a file atomically: a reader sees the old content or the new.

    Args:
      path: of the file, local or remote.
      content: of the file.
      work_dir: the folder of the unfinished file; by default, that of `path`.

    Raises:
      OutputError: something exists there that is no regular file.
      RemoteError: access to a remote file is denied, or the store cannot be reached.
      tf.errors.OpError: a local file cannot be written.
    """
    with remote.explained(path, remote.WRITE):
        outputs.write(path, content, work_dir)


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
    """The records in a file with a JSON object per line. Damaged lines are skipped and logged.

    Args:
      path: the path of the file; a missing file is empty.
      record_of: makes a record from an object, as for `from_json`.
    """
    found = []
    lines = [line for line in text_of(path).split('\n') if line]
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(from_json(line, record_of))
    if len(found) < len(lines):
        logger.info('%s: skipped %d of %d lines, which are damaged', path, len(lines) - len(found), len(lines))
    return found


def from_json(content: Union[str, bytes], make: Callable[[Any], _Record]) -> _Record:
    """Makes a value from JSON, whatever a file contains.

    Args:
      content: the content of the file; bytes are UTF-8.
      make: makes the value from what was parsed; may use that as if it had the right types.

    Raises:
      ValueError: the content is not JSON, or `make` fails. The text is the reason.
    """
    try:
        return make(json.loads(content.decode('utf-8-sig') if isinstance(content, bytes) else content))
    except RecursionError:
        raise ValueError('it is nested too deeply')
    except LookupError as error:
        raise ValueError(f'it has no {error}')
    except _DAMAGED as error:
        raise ValueError(str(error))


def record(kind: Type[_Record], values: Any) -> _Record:
    """Makes a NamedTuple from the object of its fields in JSON.

    Raises:
      TypeError: a field is missing or unknown, or has another type than it is declared with.
    """
    made = kind(**values)
    for name, hint in get_type_hints(kind).items():
        if not fits(getattr(made, name), hint):
            raise TypeError(f'{name} is {shown(repr(getattr(made, name)))}')
    return made


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON has a type: of `typing`, or a basic one. An int has 64 bits."""
    origin = getattr(hint, '__origin__', None)
    arguments: Tuple[Any, ...] = getattr(hint, '__args__', ())
    if origin is Union:
        return any(fits(value, argument) for argument in arguments)
    if origin is dict:
        return type(value) is dict and all(fits(each, arguments[1]) for each in value.values())
    if origin in (list, tuple):
        return type(value) is origin and all(fits(each, arguments[0]) for each in value)
    if hint is float:
        # JSON does not distinguish floats from integers: 1.0 may be written as 1.
        return type(value) is float or (type(value) is int and abs(value) <= _LARGEST_FLOAT)
    return hint is Any or (type(value) is hint and (hint is not int or abs(value) <= _LARGEST_INTEGER))


def text_of(path: str) -> str:
    """The content of a file; empty if the file is missing."""
    return (remote.read(path) or b'').decode(errors='replace')
