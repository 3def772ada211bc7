"""Reads and writes PyTorch's state dicts without PyTorch: the tensors of a `.pth` file, and nothing that runs code.

Both layouts of `torch.save` are read: the ZIP archive since PyTorch 1.6, and the pickles in a row before it.
(https://pytorch.org/docs/stable/notes/serialization.html; torch/serialization.py names their parts.)
"""

import collections
import io
import pickle
import struct
import zipfile
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from console.tensorflow_versions import tf
from data import remote
from inception_v3.weights.sources import WeightsError

# The first pickle of the older layout is this number.
_MAGIC = 0x1950A86A20F9469CFC6C
_ARCHIVE = b'PK'
_COUNT = struct.Struct('<q')
# Storages by their names in `torch`; NumPy has no bfloat16, whose bits are the upper half of a float32.
_BFLOAT16 = 'BFloat16Storage'
_DTYPES = {
    'DoubleStorage': '<f8',
    'FloatStorage': '<f4',
    'HalfStorage': '<f2',
    _BFLOAT16: '<u2',
    'LongStorage': '<i8',
    'IntStorage': '<i4',
    'ShortStorage': '<i2',
    'CharStorage': 'i1',
    'ByteStorage': 'u1',
    'BoolStorage': '?',
}
_STORAGES = {np.dtype(dtype).str: kind for kind, dtype in _DTYPES.items()}
# The folder in the archives that this program writes, and the version of the layout.
_FOLDER, _VERSION = 'archive', '3'
_PROBLEMS = (
    *(AttributeError, EOFError, ImportError, IndexError, KeyError, OSError, TypeError, UnicodeDecodeError, ValueError),
    *(MemoryError, NotImplementedError, RecursionError, RuntimeError, struct.error),
    *(pickle.UnpicklingError, zipfile.BadZipFile),
)


class _Storage(NamedTuple):
    """The values that tensors are views of."""

    kind: str
    values: np.ndarray


class _Pending(NamedTuple):
    """A tensor whose storage follows later in the file."""

    kind: str
    key: str
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


def is_state_dict(path: str) -> bool:
    """Whether a file's name is that of a PyTorch file."""
    return path.endswith(('.pth', '.pt'))


def read(path: str, flag: str) -> Dict[str, np.ndarray]:
    """Reads all tensors of a state dict, by name.

    Args:
      path: local or remote.
      flag: the flag that names the file, with its value, for messages.

    Raises:
      WeightsError: there is no such file, it is no state dict, or it is damaged.
      RemoteError: access is denied, or the store cannot be reached.
    """
    content = None if tf.io.gfile.isdir(path) else remote.read(path)
    if content is None:
        raise WeightsError(f'{flag}: no such file.')
    try:
        archived = zipfile.is_zipfile(io.BytesIO(content))
        if content.startswith(_ARCHIVE) and not archived:
            raise ValueError('the archive has no end: the file is truncated')
        return _tensors(_from_archive(content) if archived else _from_pickles(content))
    except _PROBLEMS as error:
        reason = str(error).partition('\n')[0] or type(error).__name__
        raise WeightsError(f'{flag}: is no state dict of PyTorch, or is damaged ({reason}).')


class _Unpickler(pickle.Unpickler):
    """Loads nothing but dicts, lists, numbers, strings and tensors."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuses what is no part of a tensor or of a state dict."""
        if (module, name) == ('collections', 'OrderedDict'):
            return collections.OrderedDict
        if (module, name) in (('torch._utils', '_rebuild_tensor_v2'), ('torch._utils', '_rebuild_tensor')):
            return _rebuilt
        if (module, name) == ('torch._utils', '_rebuild_parameter'):
            return _parameter
        if module == 'torch' and name in _DTYPES:
            return name
        raise pickle.UnpicklingError(f'it contains {module}.{name}, which is no tensor; save model.state_dict() alone')

    def persistent_load(self, pid: Any) -> Tuple[str, str]:
        """Returns the kind and the key of a storage."""
        tag, kind, key, *_ = pid
        if tag != 'storage' or kind not in _DTYPES:
            raise pickle.UnpicklingError(f'it contains {tag} of {kind}')
        return kind, str(key)


def _rebuilt(storage: Tuple[str, str], offset: int, shape: Any, strides: Any, *_: Any) -> _Pending:
    return _Pending(*storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _parameter(data: _Pending, *_: Any) -> _Pending:
    return data


def _tensors(found: Tuple[Any, Callable[[str, str], _Storage]]) -> Dict[str, np.ndarray]:
    """The tensors of a dict, as arrays of their own."""
    content, storage_of = found
    if isinstance(content, dict):
        # A file with training state has its weights under a key such as `state_dict` or `model`.
        content = max([content, *(value for value in content.values() if isinstance(value, dict))], key=_named_tensors)
    if not isinstance(content, dict) or not any(isinstance(value, _Pending) for value in content.values()):
        raise ValueError('it holds no dict of tensors by name')
    storages: Dict[str, _Storage] = {}
    tensors = {}
    for name, value in content.items():
        if isinstance(value, _Pending):
            if value.key not in storages:
                storages[value.key] = storage_of(value.kind, value.key)
            tensors[str(name)] = _view(storages[value.key], value, str(name))
    return tensors


def _named_tensors(content: Dict[Any, Any]) -> int:
    """The number of tensors under names; an optimizer has its own under numbers."""
    return sum(isinstance(value, _Pending) and isinstance(name, str) for name, value in content.items())


def _view(storage: _Storage, tensor: _Pending, name: str) -> np.ndarray:
    if len(tensor.shape) != len(tensor.strides) or min((*tensor.shape, *tensor.strides, tensor.offset), default=0) < 0:
        raise ValueError(f'{name} has the shape {tensor.shape} and the strides {tensor.strides}')
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides))
    if 0 not in tensor.shape and last >= storage.values.size:
        raise ValueError(f'{name} has more values than its storage')
    if 0 in tensor.shape:
        values = np.zeros(tensor.shape, storage.values.dtype)
    else:
        strides = [stride * storage.values.itemsize for stride in tensor.strides]
        values = np.lib.stride_tricks.as_strided(storage.values[tensor.offset :], tensor.shape, strides).copy()
    return (values.astype('<u4') << 16).view('<f4') if storage.kind == _BFLOAT16 else values


def _from_archive(content: bytes) -> Tuple[Any, Callable[[str, str], _Storage]]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    pickles = [name for name in archive.namelist() if name.endswith('/data.pkl')]
    if len(pickles) != 1:
        raise ValueError('the archive has no data.pkl')
    folder = pickles[0][: -len('data.pkl')]
    if f'{folder}byteorder' in archive.namelist() and archive.read(f'{folder}byteorder') != b'little':
        raise ValueError('its numbers are not little-endian')

    def storage_of(kind: str, key: str) -> _Storage:
        return _Storage(kind, np.frombuffer(archive.read(f'{folder}data/{key}'), _DTYPES[kind]))

    return _Unpickler(io.BytesIO(archive.read(pickles[0]))).load(), storage_of


def _from_pickles(content: bytes) -> Tuple[Any, Callable[[str, str], _Storage]]:
    file = io.BytesIO(content)
    if _Unpickler(file).load() != _MAGIC:
        raise ValueError('it has not the signature of a PyTorch file')
    _Unpickler(file).load()  # The version of the layout.
    if not _Unpickler(file).load()['little_endian']:
        raise ValueError('its numbers are not little-endian')
    kinds: Dict[str, str] = {}

    class Unpickler(_Unpickler):
        def persistent_load(self, pid: Any) -> Tuple[str, str]:
            kind, key = super().persistent_load(pid)
            kinds[key] = kind
            return kind, key

    tensors = Unpickler(file).load()
    keys: List[str] = _Unpickler(file).load()
    storages = {}
    for key in keys:
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        kind = kinds[key]
        size = count * np.dtype(_DTYPES[kind]).itemsize
        values = file.read(size) if count >= 0 else b''
        if len(values) != size:
            raise EOFError('the file ends early')
        storages[key] = _Storage(kind, np.frombuffer(values, _DTYPES[kind]))
    return tensors, lambda kind, key: storages[key]


def write(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file for `torch.load` with a state dict: contiguous tensors, each with its own storage."""
    content = io.BytesIO()
    # PyTorch reads only members that are not compressed.
    with zipfile.ZipFile(content, 'w', zipfile.ZIP_STORED) as archive:
        archive.writestr(_member('data.pkl'), _pickled(arrays))
        for number, array in enumerate(arrays.values()):
            archive.writestr(_member(f'data/{number}'), np.ascontiguousarray(array).tobytes())
        archive.writestr(_member('version'), f'{_VERSION}\n')
    return content.getvalue()


def _member(name: str) -> zipfile.ZipInfo:
    # Without the time, so that the same weights give the same file.
    return zipfile.ZipInfo(f'{_FOLDER}/{name}')


def _pickled(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The pickle of an OrderedDict of tensors. The module pickle itself writes no names of modules that are missing."""

    def name(module: str, attribute: str) -> bytes:
        return pickle.GLOBAL + f'{module}\n{attribute}\n'.encode()

    def text(value: str) -> bytes:
        return pickle.BINUNICODE + struct.pack('<I', len(value.encode())) + value.encode()

    def numbers(values: Tuple[int, ...]) -> bytes:
        return pickle.MARK + b''.join(pickle.BININT + struct.pack('<i', value) for value in values) + pickle.TUPLE

    empty_dict = name('collections', 'OrderedDict') + pickle.EMPTY_TUPLE + pickle.REDUCE
    parts: List[bytes] = [pickle.PROTO + b'\x02', empty_dict, pickle.MARK]
    for number, (key, array) in enumerate(arrays.items()):
        storage_type = name('torch', _STORAGES[array.dtype.str])
        count = pickle.BININT + struct.pack('<i', array.size)
        parts += [text(key), name('torch._utils', '_rebuild_tensor_v2'), pickle.MARK]
        parts += [pickle.MARK, text('storage'), storage_type, text(str(number)), text('cpu'), count, pickle.TUPLE]
        strides = tuple(stride // array.itemsize for stride in np.ascontiguousarray(array).reshape(array.shape).strides)
        # Offset, shape, strides, whether it needs a gradient, and hooks.
        parts += [pickle.BINPERSID, pickle.BININT + struct.pack('<i', 0), numbers(array.shape), numbers(strides)]
        parts += [pickle.NEWFALSE, empty_dict, pickle.TUPLE, pickle.REDUCE]
    return b''.join([*parts, pickle.SETITEMS, pickle.STOP])
