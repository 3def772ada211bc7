"""Reads the folder of a run: checkpoints, their damage and digests, and configurations, which it also compares."""

import contextlib
import dataclasses
import datetime
import hashlib
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence

import numpy as np

from compat import tf
from compat.errors import CheckpointError
from compat.messages import listed, shown
from compat.names import checkpoint_errors
from console import inputs
from data import remote
from data.files import text_of
from inception_v3 import loss_scale
from inception_v3.config import Config, ConfigError

CONFIG_FILE = 'config.json'
BEST_FOLDER = 'best'
# Longest value that a list of differences shows in full, in characters.
_LONGEST_VALUE = 4096
# TensorFlow's name of the list of checkpoints.
LIST_FILE = 'checkpoint'
_ADVICE = (
    'add --skip_damaged_checkpoints to resume from the newest undamaged checkpoint, or start in a new --model_dir.'
)


class DamagedError(CheckpointError):
    """The files of a checkpoint are damaged or incomplete, or its values are not finite.

    Attributes:
      fact: the message without its advice.
    """

    def __init__(self, checkpoint: str, reason: str):
        self.fact = f'{checkpoint}: is damaged ({reason}).'
        super().__init__(
            f'{self.fact} With --skip_damaged_checkpoints, training resumes from the newest undamaged checkpoint, and '
            '--mode=eval waits for the next one.'
        )


class NotFiniteError(DamagedError):
    """A checkpoint has values that are not finite."""


def absolute(folder: str) -> str:
    """The absolute path of a local folder; a remote path is absolute already."""
    return folder if remote.is_remote(folder) else os.path.abspath(folder)


def check_writable(flag: str, folder: str) -> None:
    """Creates the folder that a flag names, and checks that files in it can be written, read and removed.

    A run calls this before it spends hours on results for this folder. Raises a ConfigError that names the flag, or an
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


def now() -> str:
    """The current time in UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')


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


def latest_checkpoint(model_dir: str) -> Optional[str]:
    """The path of the newest checkpoint in a folder; None if the folder has none.

    Raises:
      CheckpointError: the list of checkpoints, the file `checkpoint`, is damaged; or the newest one lacks files.
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


def newest_checkpoint(model_dir: str) -> str:
    """Like `latest_checkpoint`, but raises CheckpointError if the folder has no checkpoint."""
    checkpoint = latest_checkpoint(model_dir)
    if not checkpoint:
        raise CheckpointError(f'{model_dir}: contains no checkpoint.')
    return checkpoint


def latest_step(model_dir: str) -> int:
    """The global step of the newest checkpoint in a folder; 0 if it has none. Raises as `latest_checkpoint`."""
    checkpoint = latest_checkpoint(model_dir)
    return step_of(checkpoint) if checkpoint else 0


def step_of(checkpoint: str) -> int:
    """The global step of a checkpoint. Raises CheckpointError if it cannot be read."""
    return int(_reader(checkpoint).get_tensor(tf.GraphKeys.GLOBAL_STEP))


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
    names = remote.names_in(folder or '.') or []
    return [os.path.join(folder, file_name) for file_name in names if file_name.startswith(f'{name}.data-')]


def check_fits_graph(checkpoint: str) -> None:
    """Raises CheckpointError unless a checkpoint has the current graph's variables, except those of loss scaling."""
    stored = _reader(checkpoint).get_variable_to_shape_map()
    optional = {v.op.name for v in tf.get_collection(loss_scale.VARIABLES)}
    wanted: Dict[str, List[int]] = {
        v.op.name: v.shape.as_list() for v in tf.global_variables() if v.op.name not in optional
    }
    problems = [
        f'{name} is missing' if name not in stored else f'{name} has the shape {stored[name]}, not {shape}'
        for name, shape in sorted(wanted.items(), key=lambda each: (each[0] in stored, each[0]))
        if stored.get(name) != shape
    ]
    if problems:
        raise CheckpointError(
            f'{checkpoint}: does not fit this run: {listed(problems)}. Use another --model_dir, or the flags of the '
            f'run that wrote it ({os.path.join(os.path.dirname(checkpoint), "config.json")}).'
        )


def _reader(checkpoint: str) -> Any:
    try:
        check_kinds(checkpoint)
        # Opening a checkpoint reads only the index; reading a value reads the data.
        with _damage_named(checkpoint, [f'{checkpoint}.index']):
            reader = tf.train.load_checkpoint(checkpoint)
        with _damage_named(checkpoint, data_files(checkpoint)):
            reader.get_tensor(tf.GraphKeys.GLOBAL_STEP)
        return reader
    except tf.errors.NotFoundError:
        if is_complete(checkpoint):
            raise CheckpointError(f'{checkpoint}: is not a checkpoint of a training run: it has no global step.')
        raise


@contextlib.contextmanager
def _damage_named(checkpoint: str, paths: Sequence[str]) -> Iterator[None]:
    """Context manager that turns TensorFlow's error about damaged files into a DamagedError that names them."""
    try:
        with checkpoint_errors():
            yield
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        if is_complete(checkpoint):
            for path in paths:
                remote.check_readable(path)
        names = ', '.join(os.path.basename(path) for path in paths)
        raise DamagedError(checkpoint, f'{names}: {error.message.partition(chr(10))[0]}')


def check_undamaged(checkpoint: str) -> None:
    """Reads a whole checkpoint, which verifies its checksums (0.3 s for 434 MB), and checks that values are finite.

    Raises:
      DamagedError: a file is damaged or missing; NotFiniteError: a value is not finite.
      CheckpointError: it is not a checkpoint of a training run.
    """
    try:
        if not is_complete(checkpoint):
            raise DamagedError(checkpoint, 'files are missing')
    except remote.UnreachableError:
        raise
    except remote.RemoteError as error:
        raise DamagedError(checkpoint, str(error))
    reader, paths = _reader(checkpoint), data_files(checkpoint)
    for name in sorted(reader.get_variable_to_shape_map()):
        with _damage_named(checkpoint, paths):
            value = reader.get_tensor(name)
        if value.dtype.kind == 'f' and not np.isfinite(value).all():
            raise NotFiniteError(checkpoint, f'{name} has values that are not finite')


# Digests: SHA-256 of the variables of a checkpoint or of a step, and of a checkpoint's index.


def digest_of_values(values: Dict[str, np.ndarray]) -> str:
    """The SHA-256 digest of names, types, shapes and values, in the order of the names: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(values):
        value = np.asarray(values[name])
        digest.update(f'{name} {value.dtype} {value.shape}\n'.encode())
        digest.update(np.ascontiguousarray(value))
    return digest.hexdigest()


def digest_of_index(checkpoint: str) -> str:
    """The digest of a checkpoint's index, which has a checksum of each variable; empty if the checkpoint is gone."""
    index = remote.read(f'{checkpoint}.index')
    return hashlib.sha256(index).hexdigest() if index else ''


def digest_of_checkpoint(checkpoint: str) -> str:
    """The digest of all variables in a checkpoint. It equals `digest_of_values` of the saved values."""
    reader = tf.train.load_checkpoint(checkpoint)
    return digest_of_values({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})


def differences(old: Config, new: Config) -> List[str]:
    """The fields in which two configurations differ, as `name: old -> new`, with values as `_in_brief` shows them."""
    return [
        f'{field.name}: {_in_brief(getattr(old, field.name))} -> {_in_brief(getattr(new, field.name))}'
        for field in dataclasses.fields(Config)
        if getattr(old, field.name) != getattr(new, field.name)
    ]


def _in_brief(value: Any) -> str:
    """A field's value; a long one, such as the weights of many classes, is shortened and followed by its digest."""
    text = str(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f'{shown(text)} (SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]})'
