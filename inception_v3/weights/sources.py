"""Reads weights to begin from: a checkpoint, the newest one of a model_dir, a SavedModel, or an .npz file."""

import io
import os
import re
import tokenize
import zipfile
import zlib
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import numpy as np

from console.messages import shown
from console.tensorflow_names import checkpoint_errors
from console.tensorflow_versions import tf
from data import remote
from inception_v3.config import Config
from inception_v3.run import digests
from inception_v3.run.checkpoints import CheckpointError, is_complete, latest_checkpoint
from inception_v3.run.files import recorded_config
from inception_v3.weights import bounds, kinds

AVERAGE = '/ExponentialMovingAverage'
_KINDS = 'a checkpoint, the model_dir of a run, a SavedModel, or an .npz file'
# The files of a checkpoint; its name has none of these endings.
_ENDING = re.compile(r'\.(index|meta|data-\d{5}-of-\d{5})$')
_LIST_OF_CHECKPOINTS = 'checkpoint'
# Bytes at the beginning of an .npy file that may be its header.
_LONGEST_HEADER = 1 << 14
# The errors of libraries about damaged archives, headers and arrays.
_DAMAGE = (
    *(AttributeError, EOFError, IndexError, KeyError, MemoryError, NotImplementedError, OSError, OverflowError),
    *(RecursionError, RuntimeError, SyntaxError, TypeError, ValueError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error),
)


class WeightsError(CheckpointError):
    """Weights cannot be read, or do not fit the run."""


class Source(NamedTuple):
    """Weights to begin from.

    Attributes:
      path: the path of the checkpoint, SavedModel or .npz file.
      kind: 'checkpoint', 'SavedModel' or 'npz'.
      values: all variables by name, those of optimizers and averages included.
      digest: SHA-256 of the values; for a checkpoint, the digest that `inception-v3 provenance` shows.
      config: the configuration of the run that wrote a checkpoint; None if it is not beside it.
    """

    path: str
    kind: str
    values: Dict[str, np.ndarray]
    digest: str
    config: Optional[Config]

    @property
    def step(self) -> Optional[int]:
        """The global step, None if there is none."""
        step = self.values.get(tf.GraphKeys.GLOBAL_STEP)
        return None if step is None or step.size != 1 else int(step.reshape(()))

    @property
    def has_averages(self) -> bool:
        """Whether there are moving averages of weights."""
        return any(name.endswith(AVERAGE) for name in self.values)

    def __str__(self) -> str:
        step = '' if self.step is None else f', step {self.step:,}'
        return f'{self.path} ({self.kind}{step})'


def read(path: str, named: str = '', outline: bool = False) -> Source:
    """Reads all weights of a source.

    Args:
      path: as `--init_from` has it, local or remote.
      named: begins the messages of errors; by default, the flag with the path.
      outline: read names, shapes and types alone, which the index of a checkpoint has, and give all values but the step
        as 0. The digest is empty. An .npz file has no index, and is read whole.

    Raises:
      WeightsError: there is nothing at the path, or it is none of the four kinds, or damaged.
      CheckpointError: the newest checkpoint of a model_dir is incomplete.
      RemoteError: access is denied, or the store cannot be reached.
    """
    flag = named or f'--init_from={path}'
    variables = _outline if outline else _variables
    if path.endswith('.npz'):
        return _of_values(path, 'npz', arrays(path, flag))
    if tf.saved_model.loader.maybe_saved_model_directory(path):
        return _of_values(path, 'SavedModel', variables(os.path.join(path, 'variables', 'variables'), flag), outline)
    if remote.exists(os.path.join(path, _LIST_OF_CHECKPOINTS)):
        checkpoint = latest_checkpoint(path)
        assert checkpoint, 'there is a list'
        return _of_values(checkpoint, 'checkpoint', variables(checkpoint, flag), outline)
    if is_complete(path):
        return _of_values(path, 'checkpoint', variables(path, flag), outline)
    if remote.exists(path) and not tf.io.gfile.isdir(path) and not _ENDING.search(path):
        with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
            kind = kinds.of_file(path, file.read(kinds.BEGINNING))
        if kind:
            raise WeightsError(f'{flag}: is {kind}')
        # A file alone may be a checkpoint in TensorFlow's first format, as TF-Slim published some.
        return _of_values(path, 'checkpoint', variables(path, flag), outline)
    raise WeightsError(f'{flag}: {_why_not(path)}')


def _why_not(path: str) -> str:
    """The reason why a path names no weights."""
    if _ENDING.search(path):
        return f'is a file of a checkpoint. Give the name without its ending: {_ENDING.sub("", path)}.'
    names = remote.names_in(path) if tf.io.gfile.isdir(path) else None
    if names is not None:
        kind = kinds.of_folder(names)
        if kind:
            return f'is {kind}'
        models = [name.rstrip('/') for name in names if name.rstrip('/').isdigit()]
        if models:
            return f'has SavedModels in folders. Name one of them, such as {os.path.join(path, max(models, key=int))}.'
        return f'the folder has no checkpoint and no SavedModel. Name {_KINDS}.'
    if remote.exists(f'{path}.index'):
        return 'the checkpoint has an index, but no data files. Restore them.'
    return f'does not exist. Name {_KINDS}.'


def _of_values(path: str, kind: str, values: Dict[str, np.ndarray], outline: bool = False) -> Source:
    config = recorded_config(os.path.dirname(path)) if kind == 'checkpoint' else None
    return Source(path, kind, values, '' if outline else digests.of_values(values), config)


def _variables(checkpoint: str, flag: str) -> Dict[str, np.ndarray]:
    return _read(
        checkpoint, flag, lambda reader: {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    )


def _outline(checkpoint: str, flag: str) -> Dict[str, np.ndarray]:
    def zeros(reader: Any) -> Dict[str, np.ndarray]:
        types = reader.get_variable_to_dtype_map()
        values = {
            name: np.broadcast_to(np.zeros((), types[name].as_numpy_dtype), shape)
            for name, shape in reader.get_variable_to_shape_map().items()
        }
        if tf.GraphKeys.GLOBAL_STEP in values:
            values[tf.GraphKeys.GLOBAL_STEP] = reader.get_tensor(tf.GraphKeys.GLOBAL_STEP)
        return values

    return _read(checkpoint, flag, zeros)


def _read(checkpoint: str, flag: str, values_of: Callable[[Any], Dict[str, np.ndarray]]) -> Dict[str, np.ndarray]:
    def damaged(reason: Any) -> WeightsError:
        return WeightsError(f'{flag}: {checkpoint} is no checkpoint, or is damaged ({reason}). Name {_KINDS}.')

    try:
        with remote.explained(checkpoint, remote.READ), checkpoint_errors():
            reader = tf.train.load_checkpoint(checkpoint)
            kind = kinds.of_variables(reader.get_variable_to_shape_map())
            if kind:
                raise WeightsError(f'{flag}: is {kind}')
            return values_of(reader)
    except tf.errors.OpError as error:
        raise damaged(error.message.partition('\n')[0])
    except (ValueError, RuntimeError) as error:
        raise damaged(str(error).partition('\n')[0])


def arrays(path: str, flag: str, is_wanted: Callable[[str], bool] = bool) -> Dict[str, np.ndarray]:
    """Reads the arrays of an .npz file, by name.

    Args:
      path: local or remote.
      flag: the flag that names the file, with its value, for messages.
      is_wanted: whether an array of a name is read.

    Raises:
      WeightsError: there is no such file, it is no .npz file of arrays, or it is damaged.
      RemoteError: access is denied, or the store cannot be reached.
    """
    content = None if tf.io.gfile.isdir(path) else remote.read(path)
    if content is None:
        raise WeightsError(f'{flag}: no such file.')
    # Not by np.load, which prints a traceback about a damaged archive.
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # Names of variables may end with the number of their output, as in `variable.name`.
            names = {re.sub(r'(:0)?\.npy$', '', name): name for name in archive.namelist()}
            headers = {name: _header(archive, entry) for name, entry in names.items() if is_wanted(name)}
            bounds.check(sum(header.size for header in headers.values()), len(content))
            return {name: _array(archive, names[name], header) for name, header in headers.items()}
    except WeightsError:
        raise
    # NumPy parses the header of an array by Python's tokenizer, which has many errors.
    except Exception as error:
        reason = shown(str(error).partition('\n')[0] or type(error).__name__, 200)
        raise WeightsError(f'{flag}: is no .npz file of arrays, or is damaged ({reason}).')


class _Header(NamedTuple):
    """The beginning of an .npy file, with the bytes of header and array."""

    shape: Tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype
    begin: int
    size: int


def _header(archive: zipfile.ZipFile, name: str) -> _Header:
    file = io.BytesIO(bounds.member(archive, name, _LONGEST_HEADER))
    read = (
        np.lib.format.read_array_header_1_0
        if np.lib.format.read_magic(file) == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, is_fortran, dtype = read(file)
    size = dtype.itemsize
    for length in shape:
        size *= length
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError(f'{name} has the type {dtype} and the shape {shape}')
    return _Header(shape, is_fortran, dtype, file.tell(), file.tell() + size)


def _array(archive: zipfile.ZipFile, name: str, header: _Header) -> np.ndarray:
    values = np.frombuffer(bounds.member(archive, name, header.size)[header.begin :], header.dtype)
    return values.reshape(header.shape, order='F' if header.is_fortran else 'C').copy()
