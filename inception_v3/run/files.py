"""Names and checks of the files in a model_dir."""

import datetime
import os

from compat import tf
from data import remote
from inception_v3.config import ConfigError
from inception_v3.model_dir import CONFIG_FILE, read_config, recorded_config  # noqa: F401

BEST_FOLDER = 'best'


def now() -> str:
    """The current time in UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')


def check_writable(flag: str, folder: str) -> None:
    """Creates the folder that a flag names, and checks that files in it can be written, read and removed.

    A run calls this before it spends hours on results for this folder. If it fails, a ConfigError names the flag, or an
    UnreachableError if the store cannot be reached.
    """
    probe = os.path.join(folder, f'.probe-{os.getpid()}')
    try:
        if remote.is_remote(folder):
            # Listing a folder distinguishes a missing bucket from denied access; creating a folder does not.
            remote.names_in(folder)
        with remote.explained(folder, remote.WRITE):
            tf.io.gfile.makedirs(folder)
            with tf.io.gfile.GFile(probe, 'w') as file:
                file.write(probe)
        remote.read(probe)
        with remote.explained(probe, remote.DELETE):
            tf.io.gfile.remove(probe)
    except remote.UnreachableError as error:
        raise remote.UnreachableError(f'--{flag}={folder}: {error}')
    except remote.RemoteError as error:
        raise ConfigError(f'--{flag}={folder}: cannot be written to. {error}')
    except tf.errors.OpError as error:
        raise ConfigError(f'--{flag}={folder}: cannot be written to: {error.message}')
