"""Files in a model_dir: written whole, appended to, read line by line."""

import contextlib
import datetime
import json
import os
from typing import Any, Callable, Dict, List, Optional, TypeVar

import tensorflow as tf

from console.log import logger
from data import remote
from inception_v3.config import Config, ConfigError

CONFIG_FILE = 'config.json'


BEST_FOLDER = 'best'


_Record = TypeVar('_Record')


def now() -> str:
    """The time as UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')


def check_writable(flag: str, folder: str) -> None:
    """Makes a folder, and writes, reads and removes a file in it: before hours are spent on what is to go there.

    Args:
      flag: the flag that names the folder.
      folder: its path.

    Raises:
      ConfigError: it cannot be written to, or what is written there cannot be read or removed again.
      UnreachableError: it cannot be reached.
    """
    probe = os.path.join(folder, f'.probe-{os.getpid()}')
    try:
        if remote.is_remote(folder):
            # A listing says which it is when the bucket is missing or refused; making a folder does not.
            remote.names_in(folder)
        with remote.explained(folder, remote.WRITE):
            tf.io.gfile.makedirs(folder)
            with tf.io.gfile.GFile(probe, 'w') as file:
                file.write(probe)
        if remote.read(probe) != probe.encode():
            raise ConfigError(f'--{flag}={folder}: what is written there is not what is read again.')
        with remote.explained(probe, remote.DELETE):
            tf.io.gfile.remove(probe)
    except remote.UnreachableError as error:
        raise remote.UnreachableError(f'--{flag}={folder}: {error}')
    except remote.RemoteError as error:
        raise ConfigError(f'--{flag}={folder}: cannot be used to write to. {error}')
    except tf.errors.OpError as error:
        raise ConfigError(f'--{flag}={folder}: cannot be written to: {error.message}')


def recorded_config(model_dir: str) -> Optional[Config]:
    """The configuration in a run's `config.json`; None if there is none, or none that can be read."""
    path = os.path.join(model_dir, CONFIG_FILE)
    if not remote.exists(path):
        return None
    try:
        return Config.from_json(text_of(path))
    except ConfigError:
        return None


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
