"""Files in a model_dir: written whole, appended to, read line by line."""

import datetime
import os
from typing import Optional

import tensorflow as tf

from data import remote
from data.files import text_of
from inception_v3.config import Config, ConfigError

CONFIG_FILE = 'config.json'


BEST_FOLDER = 'best'


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
