"""Reads and writes PyTorch's files of state dicts without PyTorch, and executes no code in them.

A file of `torch.save` is a pickle that refers to the bytes of its tensors. Since PyTorch 1.6 it is a zip archive
(https://pytorch.org/docs/stable/notes/serialization.html); before, the bytes follow a series of pickles. A pickle may
call any function that it names. Only those that rebuild tensors are allowed here, in versions of our own.
"""

import collections
import io
import pickle
import struct
import zipfile
import zlib
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from console.errors import CommandError
from console.messages import shown

ARCHIVE = b'PK\x03\x04'
# The beginning of a pickle of protocol 2 of the number with which older files begin.
OLD = b'\x80\x02\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19'
_FOLDER = 'archive'
_FORMAT_VERSION = '3'
# NumPy has no bfloat16: the upper halves of float32.
BFLOAT16 = 'bfloat16'
# PyTorch's types of storages, by NumPy's names of the types.
_STORAGES: Mapping[str, str] = {
    'FloatStorage': '<f4',
    'DoubleStorage': '<f8',
    'HalfStorage': '<f2',
    'BFloat16Storage': BFLOAT16,
    'LongStorage': '<i8',
    'IntStorage': '<i4',
    'ShortStorage': '<i2',
    'CharStorage': '|i1',
    'ByteStorage': '|u1',
    'BoolStorage': '|b1',
}
_NAMES = {dtype: name for name, dtype in _STORAGES.items()}
# The errors of the modules pickle, zipfile and struct about damaged content.
DAMAGE = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, TypeError, KeyError),
    *(IndexError, AttributeError, NotImplementedError, OverflowError, MemoryError, RecursionError, RuntimeError),
)


class PickleError(CommandError):
    """A file refers to code that is not allowed."""


class _Storage(NamedTuple):
    """The bytes of tensors: their type and key."""

    dtype: str
    key: str
    values: int


class _Tensor(NamedTuple):
    """A tensor whose values have not been read yet: its storage, and the part of it, in elements."""

    storage: _Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


class _StorageType(NamedTuple):
    """A type of storage that a pickle names."""

    dtype: str


def _tensor(storage: _Storage, offset: int, shape: Tuple[int, ...], strides: Tuple[int, ...], *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


_ALLOWED: Mapping[Tuple[str, str], Any] = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('torch._utils', '_rebuild_tensor_v2'): _tensor,
    ('torch._utils', '_rebuild_parameter'): _parameter,
    ('torch', 'Size'): tuple,
    **{('torch', name): _StorageType(dtype) for name, dtype in _STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Reads pickles that name nothing but tensors."""

    def __init__(self, file: BinaryIO, path: str):
        super().__init__(file, encoding='utf-8')
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None:
            raise PickleError(
                f'{self._path}: is refused, because it names {shown(f"{module}.{name}")}: loading it could execute '
                'code. Only dictionaries of tensors are read. Where you trust the file, save its state dict alone: '
                'torch.save(model.state_dict(), FILE).'
            )
        return found

    def persistent_load(self, pid: Any) -> _Storage:
        kind, storage, key, _, count = pid[:5]
        if kind != 'storage' or (len(pid) > 5 and pid[5] is not None):
            raise pickle.UnpicklingError('a reference to something else than a tensor')
        return _Storage(storage.dtype, str(key), int(count))


def read(content: bytes, path: str) -> Dict[str, np.ndarray]:
    """The arrays of a state dict, by name, from a file of `torch.save`.

    A checkpoint of a training script may hold the state dict under a key such as `state_dict` or `model`.

    Args:
      content: of the file.
      path: named in errors.

    Raises:
      PickleError: the file names functions or classes other than those of tensors.
      ValueError, or another error of `DAMAGE`: the file is damaged, or holds something else.
    """
    if content.startswith(ARCHIVE):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            pickles = [name for name in archive.namelist() if name.endswith('/data.pkl')]
            if len(pickles) != 1:
                raise ValueError('an archive without data.pkl')
            folder = pickles[0][: -len('data.pkl')]
            if f'{folder}constants.pkl' in archive.namelist():
                raise ValueError('a TorchScript model; save model.state_dict() instead')
            if f'{folder}byteorder' in archive.namelist() and archive.read(f'{folder}byteorder') != b'little':
                raise ValueError('written on a machine with big-endian numbers')
            found = _Unpickler(io.BytesIO(archive.read(pickles[0])), path).load()
            return _arrays(found, lambda storage: archive.read(f'{folder}data/{storage.key}'))
    return _read_old(io.BytesIO(content), path)


def _read_old(file: BinaryIO, path: str) -> Dict[str, np.ndarray]:
    # A number that marks the format, its version, and the machine; then the object, and the order of its storages.
    for _ in range(3):
        _Unpickler(file, path).load()
    found = _Unpickler(file, path).load()
    keys = _Unpickler(file, path).load()
    sizes = {tensor.storage.key: tensor.storage for tensor in _tensors(found).values()}
    storages: Dict[str, bytes] = {}
    for key in keys:
        (count,) = struct.unpack('<q', file.read(8))
        storage = sizes.get(str(key))
        if storage is None or storage.values != count:
            raise ValueError('the sizes of its tensors contradict each other')
        storages[storage.key] = file.read(
            count * (2 if storage.dtype == BFLOAT16 else np.dtype(storage.dtype).itemsize)
        )
    return _arrays(found, lambda storage: storages[storage.key])


def _tensors(found: Any) -> Dict[str, _Tensor]:
    """The tensors of a state dict, which may be inside a dictionary."""
    if isinstance(found, dict):
        own = {name: value for name, value in found.items() if isinstance(value, _Tensor) and isinstance(name, str)}
        inner = [value for value in found.values() if isinstance(value, dict)]
        candidates = [own, *(_tensors(value) for value in inner)] if inner else [own]
        # The state dict is where the most tensors are under names; an optimizer's are under numbers.
        return max(candidates, key=len)
    return {}


def _arrays(found: Any, read_storage: Callable[[_Storage], bytes]) -> Dict[str, np.ndarray]:
    tensors = _tensors(found)
    if not tensors:
        raise ValueError('it holds no dictionary of tensors')
    storages: Dict[str, np.ndarray] = {}
    for tensor in tensors.values():
        storage = tensor.storage
        if storage.key not in storages:
            storages[storage.key] = decoded(read_storage(storage), storage.dtype)
    return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}


def decoded(content: bytes, dtype: str) -> np.ndarray:
    """The values that are stored as bytes of a type; those of bfloat16 become float32."""
    if dtype == BFLOAT16:
        return (np.frombuffer(content, '<u2').astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(content, dtype)


def _array(tensor: _Tensor, values: np.ndarray) -> np.ndarray:
    """A tensor as an array; strides must not lead out of the storage."""
    numbers = (tensor.offset, *tensor.shape, *tensor.strides)
    if len(tensor.shape) != len(tensor.strides) or min(numbers) < 0:
        raise ValueError('a tensor with strange strides')
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides))
    if 0 not in tensor.shape and last >= len(values):
        raise ValueError('it is shorter than its tensors')
    strides = [stride * values.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides).copy()


def write(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file for `torch.load` with a state dict: contiguous tensors, each with its own storage."""
    content = io.BytesIO()
    # PyTorch reads only members that are not compressed.
    with zipfile.ZipFile(content, 'w', zipfile.ZIP_STORED) as archive:
        archive.writestr(_member('data.pkl'), _pickled(arrays))
        for number, array in enumerate(arrays.values()):
            archive.writestr(_member(f'data/{number}'), np.ascontiguousarray(array).tobytes())
        archive.writestr(_member('version'), f'{_FORMAT_VERSION}\n')
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
        storage_type = name('torch', _NAMES[array.dtype.str])
        count = pickle.BININT + struct.pack('<i', array.size)
        parts += [text(key), name('torch._utils', '_rebuild_tensor_v2'), pickle.MARK]
        parts += [pickle.MARK, text('storage'), storage_type, text(str(number)), text('cpu'), count, pickle.TUPLE]
        strides = tuple(stride // array.itemsize for stride in np.ascontiguousarray(array).reshape(array.shape).strides)
        # Offset, shape, strides, whether it needs a gradient, and hooks.
        parts += [pickle.BINPERSID, pickle.BININT + struct.pack('<i', 0), numbers(array.shape), numbers(strides)]
        parts += [pickle.NEWFALSE, empty_dict, pickle.TUPLE, pickle.REDUCE]
    return b''.join([*parts, pickle.SETITEMS, pickle.STOP])
