"""Reads weights to begin from: a checkpoint, a model_dir's newest checkpoint, a SavedModel, or an .npz file."""

import contextlib
import io
import os
import re
import zipfile
from typing import Callable, Dict, Iterator, NamedTuple, Optional

import numpy as np

from compat import tf
from compat.errors import CheckpointError, CommandError
from compat.messages import full, shown
from compat.names import checkpoint_errors
from console import inputs
from data import remote
from inception_v3 import model_dir
from inception_v3.config import Config

AVERAGE = '/ExponentialMovingAverage'
_KINDS = (
    'a checkpoint without an ending such as .index, the model_dir of a run, a SavedModel (a numbered folder in an '
    'export_dir), or an .npz file'
)
# For users who begin a run; the command itself lists all kinds of files that it reads.
_IMPORT = '; inception-v3 weights import FILE MODEL_DIR makes one of a file of Keras or PyTorch'
# The variable of TensorFlow 2's checkpoints, such as those of Keras, that describes the objects with the variables.
OBJECT_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
# The memory that a file may need: this many bytes, or this many times the file's size. Only compressed files need more
# than their size.
_SMALL, _TIMES = 1 << 28, 16
# Arrays in an archive; the largest network has 1,600 variables with its averages and slots.
_MOST_MEMBERS = 10_000


class WeightsError(CheckpointError):
    """Weights cannot be read, or do not fit the run."""


class Source(NamedTuple):
    """Weights to begin from, of the kind 'checkpoint', 'SavedModel' or 'npz', with their SHA-256 digest.

    The values are all variables by name, including optimizers and averages. The configuration is that of the run that
    wrote the checkpoint, if it lies beside it.
    """

    path: str
    kind: str
    values: Dict[str, np.ndarray]
    digest: str
    config: Optional[Config]

    @property
    def step(self) -> Optional[int]:
        """The global step; None if the source has none."""
        step = self.values.get(tf.GraphKeys.GLOBAL_STEP)
        return None if step is None or step.size != 1 else int(step.reshape(()))

    @property
    def has_averages(self) -> bool:
        """Whether there are moving averages of weights."""
        return any(name.endswith(AVERAGE) for name in self.values)

    def __str__(self) -> str:
        step = '' if self.step is None else f', step {self.step:,}'
        return f'{self.path} ({self.kind}{step})'


def named_by(path: str) -> str:
    """The checkpoint, model_dir or SavedModel to which a file belongs; other paths are returned unchanged."""
    folder, name = os.path.split(path)
    checkpoint = re.sub(r'\.(index|meta|data-\d{5}-of-\d{5})$', '', path)
    if checkpoint != path and model_dir.is_complete(checkpoint):
        return checkpoint
    if name in (model_dir.LIST_FILE, 'saved_model.pb') and remote.exists(path):
        return folder or '.'
    if name == 'variables' and remote.exists(os.path.join(path, 'variables.index')):
        return folder or '.'
    return path


def read(path: str, named: str = '') -> Source:
    """Reads all weights of a source, local or remote. Error messages begin with `named`, or with the flag.

    The path may be that of one of the source's files: see `named_by`.

    Raises:
      WeightsError: nothing exists at the path, or it is not of the four kinds, or it is damaged.
      CheckpointError: the newest checkpoint of a model_dir is incomplete.
      RemoteError: access is denied, or the store cannot be reached.
    """
    flag, kinds = named or f'--init_from={path}', _KINDS if named else _KINDS + _IMPORT
    path = named_by(path)
    kind, stored = 'checkpoint', path
    if path.endswith('.npz'):
        values = arrays(path, flag)
        return Source(path, 'npz', values, model_dir.digest_of_values(values), None)
    if tf.saved_model.loader.maybe_saved_model_directory(path):
        kind, stored = 'SavedModel', os.path.join(path, 'variables', 'variables')
    elif remote.exists(os.path.join(path, model_dir.LIST_FILE)):
        path = stored = str(model_dir.latest_checkpoint(path))
    elif not model_dir.is_complete(path) and (tf.io.gfile.isdir(path) or not remote.exists(path)):
        # A single file may be a checkpoint in TensorFlow's first format, such as some that TF-Slim published.
        raise WeightsError(f'{flag}: no complete checkpoint or SavedModel is there. Name {kinds}.')
    values = _variables(stored, flag, kinds)
    if OBJECT_GRAPH in values and not named:
        raise WeightsError(
            f'{flag}: is of Keras or another program of TensorFlow 2, whose variables have other names. Make a '
            f'model_dir of it: inception-v3 weights import {full(path)} MODEL_DIR.'
        )
    config = model_dir.recorded_config(os.path.dirname(path)) if kind == 'checkpoint' else None
    return Source(path, kind, values, model_dir.digest_of_values(values), config)


def _variables(checkpoint: str, flag: str, kinds: str) -> Dict[str, np.ndarray]:
    """The variables of a checkpoint by name."""
    try:
        model_dir.check_kinds(checkpoint)
        with remote.explained(checkpoint, remote.READ), checkpoint_errors():
            reader = tf.train.load_checkpoint(checkpoint)
            return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = str(getattr(error, 'message', error)).partition('\n')[0]
        raise WeightsError(f'{flag}: {checkpoint} is not a checkpoint, or is damaged ({reason}). Name {kinds}.')


def content_of(path: str, flag: str, at_most: int = inputs.WEIGHTS_BYTES) -> bytes:
    """The content of a file of at most `at_most` bytes. Raises WeightsError if there is no such file."""
    content = None if tf.io.gfile.isdir(path) else remote.read(path, at_most)
    if content is None:
        raise WeightsError(f'{flag}: no such file.')
    return content


@contextlib.contextmanager
def damage_explained(flag: str, kind: str, advice: str = '') -> Iterator[None]:
    """Turns the many errors of libraries about a damaged file into one message, which ends with the advice."""
    try:
        yield
    except CommandError:
        raise
    except Exception as error:
        reason = shown(str(error).partition('\n')[0] or type(error).__name__, 300)
        raise WeightsError(f'{flag}: is not a {kind}, or is damaged ({reason}).{advice}')


def check_memory(needed: int, size: int) -> None:
    """Raises ValueError, before anything is inflated, if tensors need far more bytes than their file has."""
    if needed > max(_SMALL, _TIMES * size):
        raise ValueError(f'its tensors need {needed:,} bytes of memory, too many for a file of {size:,} bytes')


def check_members(end: bytes) -> None:
    """Raises ValueError if a ZIP archive with this end has many members, which take seconds to list."""
    # The number of members is in the last record (APPNOTE 4.3.16).
    count = int.from_bytes(end[end.rfind(b'PK\5\6') :][10:12], 'little')
    if count > _MOST_MEMBERS:
        raise ValueError(f'it holds {count:,} arrays; weights are at most {_MOST_MEMBERS:,}')


def archive_of(content: bytes) -> zipfile.ZipFile:
    """Opens a ZIP archive of arrays. Raises ValueError for far more members or inflated bytes than a network needs."""
    check_members(content)
    archive = zipfile.ZipFile(io.BytesIO(content))
    check_memory(sum(info.file_size for info in archive.infolist()), len(content))
    return archive


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member of an archive; inflates at most the size that the archive states."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f'{name} is compressed by another method than deflate')
    with archive.open(info) as file:
        return file.read(info.file_size)


def arrays(path: str, flag: str, is_wanted: Callable[[str], bool] = bool) -> Dict[str, np.ndarray]:
    """Reads the arrays of an .npz file whose names are wanted. Messages begin with the flag and its value.

    Raises WeightsError if there is no such file, if it is not a NumPy file of arrays, or if it is damaged.
    """
    content = content_of(path, flag)
    # Not by np.load, which prints a traceback about a damaged archive.
    with damage_explained(flag, 'NumPy file of arrays'), archive_of(content) as archive:
        # Names of variables may end with the number of their output, as in `variable.name`.
        names = {re.sub(r'(:0)?\.npy$', '', name): name for name in archive.namelist()}
        return {
            name: np.lib.format.read_array(io.BytesIO(member(archive, path)), allow_pickle=False)
            for name, path in names.items()
            if is_wanted(name)
        }
