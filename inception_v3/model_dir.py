"""Reads what the folder of a run holds: its newest checkpoint, its configuration, and the digest of its variables."""

import hashlib
import os
from typing import Any, Dict, List, Optional

import numpy as np

from compat import tf
from compat.errors import CheckpointError
from console import inputs
from data import remote
from data.files import text_of
from inception_v3.config import Config, ConfigError

CONFIG_FILE = 'config.json'
# TensorFlow's name of the list of checkpoints.
LIST_FILE = 'checkpoint'
_ADVICE = (
    'add --skip_damaged_checkpoints to resume from the newest undamaged checkpoint, or start in a new --model_dir.'
)


def absolute(folder: str) -> str:
    """The absolute path of a local folder; a remote path is absolute already."""
    return folder if remote.is_remote(folder) else os.path.abspath(folder)


def latest_checkpoint(model_dir: str) -> Optional[str]:
    """The path of the newest checkpoint in a folder; None if the folder has none.

    Raises:
      CheckpointError: the list of checkpoints, the file `checkpoint`, is damaged; or files of the newest are missing.
      RemoteError: access is denied, or the store cannot be reached.
    """
    path = os.path.join(model_dir, LIST_FILE)
    if not remote.exists(path):
        return None
    # TensorFlow treats a list that it cannot read as an empty list.
    remote.check_readable(path)
    state = list_of_checkpoints(model_dir)
    if not state:
        raise CheckpointError(f'{path}: lists no checkpoint. Restore the file, {_ADVICE}')
    newest = state.model_checkpoint_path
    if not is_complete(newest):
        name = os.path.basename(newest)
        raise CheckpointError(f'{path}: lists {name}, but files of it are missing. Restore them, {_ADVICE}')
    return newest


def list_of_checkpoints(model_dir: str) -> Any:
    """TensorFlow's list of the checkpoints in a folder; None if it is missing or damaged."""
    remote.check_kind(os.path.join(model_dir, LIST_FILE), inputs.TEXT_BYTES)
    try:
        return tf.train.get_checkpoint_state(model_dir)
    except ValueError:
        return None


def is_complete(checkpoint: str) -> bool:
    """Whether a checkpoint has its index and data files. Raises RemoteError if one is not a regular file."""
    check_kinds(checkpoint)
    return remote.exists(f'{checkpoint}.index') and bool(data_files(checkpoint))


def check_kinds(checkpoint: str) -> None:
    """Raises RemoteError if a file of a local checkpoint is not a regular one, which TensorFlow might wait for."""
    if not remote.is_remote(checkpoint):
        # A checkpoint in TensorFlow's first format is one file.
        whole = [] if os.path.isdir(checkpoint) else [checkpoint]
        for path in (*whole, f'{checkpoint}.index', *data_files(checkpoint)):
            remote.check_kind(path)


def data_files(checkpoint: str) -> List[str]:
    """The paths of a checkpoint's data files."""
    folder, name = os.path.split(checkpoint)
    names = remote.names_in(folder) or []
    return [os.path.join(folder, file_name) for file_name in names if file_name.startswith(f'{name}.data-')]


def read_config(model_dir: str) -> Optional[Config]:
    """The configuration in a run's `config.json`; None if the file is missing or empty.

    Raises:
      ConfigError: the file is damaged, or has a setting that is not allowed.
      RemoteError: the file cannot be read.
    """
    path = os.path.join(model_dir, CONFIG_FILE)
    text = text_of(path)
    if not text:
        return None
    try:
        return Config.from_json(text)
    except ConfigError as error:
        raise ConfigError(f'{path}: {error}')


def recorded_config(model_dir: str) -> Optional[Config]:
    """The configuration in a run's `config.json`; None if the file is missing or damaged."""
    try:
        return read_config(model_dir)
    except ConfigError:
        return None


def digest_of_values(values: Dict[str, np.ndarray]) -> str:
    """The SHA-256 digest of names, types, shapes and values, in the order of the names: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(values):
        value = np.asarray(values[name])
        digest.update(f'{name} {value.dtype} {value.shape}\n'.encode())
        digest.update(np.ascontiguousarray(value))
    return digest.hexdigest()
