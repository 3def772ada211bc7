"""Reads and writes PyTorch's state dicts without PyTorch: the tensors of a `.pth` file, and nothing that runs code.

Objects of other types, such as the arguments and the optimizer of a training script, are skipped. Both layouts of
`torch.save` are read: the ZIP archive since PyTorch 1.6, and the pickles in a row before it.
(https://pytorch.org/docs/stable/notes/serialization.html; torch/serialization.py names their parts.)
"""

import collections
import io
import pickle
import pickletools
import struct
import zipfile
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from console.messages import shown
from console.tensorflow_versions import tf
from data import remote
from inception_v3.weights import bounds
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


# Bytes of a pickle, and numbers of the objects that it names for later use; a state dict of 10,000 tensors has 2 MB.
_LONGEST_PICKLE = 1 << 23
# State dicts are at most so deep in the dicts of a training script.
_DEEPEST = 3
# Chooses one of several state dicts by their keys, of the names of their tensors.
Choice = Callable[[Mapping[str, Sequence[str]]], str]


class _Pending(NamedTuple):
    """A tensor whose storage is not read yet."""

    kind: str
    key: str
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]

    @property
    def extent(self) -> int:
        """The number of values from the beginning of the storage to the tensor's last one."""
        if len(self.shape) != len(self.strides) or min((*self.shape, *self.strides, self.offset)) < 0:
            raise ValueError(f'a tensor has the shape {self.shape} and the strides {self.strides}')
        if 0 in self.shape:
            return 0
        return self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))


class _Skipped:
    """Stands for an object that is no tensor: takes all arguments, states and items, and does nothing."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def _ignore(self, *_: Any, **__: Any) -> '_Skipped':
        return self

    __call__ = __setstate__ = __setitem__ = append = extend = add = _ignore


# The values of a storage by kind and key, at most so many of them.
_Storages = Callable[[str, str, int], np.ndarray]


class _Content(NamedTuple):
    """An unpickled file.

    Attributes:
      value: dicts, lists, numbers, texts, `_Pending` and `_Skipped`.
      skipped: the names of skipped classes.
      storage_of: reads a storage.
    """

    value: Any
    skipped: List[str]
    storage_of: _Storages


def is_state_dict(path: str) -> bool:
    """Whether a file's name is that of a PyTorch file."""
    return path.endswith(('.pth', '.pt'))


def _largest(models: Mapping[str, Sequence[str]]) -> str:
    return max(models, key=lambda key: len(models[key]))


def read(path: str, flag: str, choose: Choice = _largest) -> Dict[str, np.ndarray]:
    """Reads all tensors of a state dict, by name.

    Args:
      path: local or remote.
      flag: the flag that names the file, with its value, for messages.
      choose: given the names of the tensors of each state dict in the file, returns the key of one. By default, the one
        with the most tensors.

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
        unpickled = _from_archive(content) if archived else _from_pickles(content)
        models = _models(unpickled.value)
        if not models:
            raise WeightsError(f'{flag}: {_why_none(unpickled)}')
        tensors = models[choose({key: [*tensors] for key, tensors in models.items()})]
        return _arrays(tensors, unpickled.storage_of, len(content))
    except _PROBLEMS as error:
        reason = shown(str(error).partition('\n')[0] or type(error).__name__, 200)
        raise WeightsError(f'{flag}: is no state dict of PyTorch, or is damaged ({reason}).')


class _Unpickler(pickle.Unpickler):
    """Loads dicts, lists, numbers, strings and tensors, and `_Skipped` for anything else. Imports and calls nothing."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.skipped: List[str] = []
        self.kinds: Dict[str, str] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The constructors of state dicts and tensors; a name of a storage; or a class that does nothing."""
        if (module, name) == ('collections', 'OrderedDict'):
            return collections.OrderedDict
        if (module, name) in (('torch._utils', '_rebuild_tensor_v2'), ('torch._utils', '_rebuild_tensor')):
            return _rebuilt
        if (module, name) in (
            ('torch._utils', '_rebuild_parameter'),
            ('torch._utils', '_rebuild_parameter_with_state'),
        ):
            return _parameter
        if module == 'torch' and name.endswith('Storage'):
            return name
        self.skipped.append(f'{module}.{name}')
        return _Skipped

    def persistent_load(self, pid: Any) -> Any:
        """Returns the kind and the key of a storage."""
        tag, kind, key, *_ = pid
        if tag != 'storage':
            return _Skipped()
        self.kinds[str(key)] = str(kind)
        return str(kind), str(key)


def _rebuilt(storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> Any:
    if not isinstance(storage, tuple) or storage[0] not in _DTYPES:
        return _Skipped()
    kind, key = storage
    return _Pending(kind, key, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _load(file: Any) -> Tuple[Any, _Unpickler]:
    """Unpickles one value."""
    begin = file.tell()
    # Python allocates whatever size and number the opcodes claim; this reads them without it.
    for opcode, argument, place in pickletools.genops(file):
        if int(place or 0) - begin > _LONGEST_PICKLE or (
            opcode.name in ('PUT', 'LONG_BINPUT') and int(argument or 0) > _LONGEST_PICKLE
        ):
            raise ValueError('its pickle is too large for a state dict')
    file.seek(begin)
    unpickler = _Unpickler(file)
    return unpickler.load(), unpickler


def _models(content: Any) -> Dict[str, Dict[str, _Pending]]:
    """The dicts of tensors by name, under the keys that lead to them."""
    found: Dict[str, Dict[str, _Pending]] = {}
    seen = set()
    following: List[Tuple[Tuple[str, ...], Any]] = [((), content)]
    for keys, each in following:
        if isinstance(each, dict) and id(each) not in seen and len(keys) <= _DEEPEST:
            seen.add(id(each))
            # An optimizer has its tensors under numbers.
            tensors = {name: value for name, value in each.items() if isinstance(value, _Pending) and name == str(name)}
            found.update({'.'.join(keys): tensors} if tensors else {})
            following += [((*keys, str(name)), value) for name, value in each.items() if isinstance(value, dict)]
    return found


def _why_none(content: _Content) -> str:
    """The reason why a file has no state dict."""
    save = 'torch.save(model.state_dict(), NEW_FILE)'
    if any(name.startswith('__torch__.') for name in content.skipped):
        return f'is a program of TorchScript. Save its state dict: model = torch.jit.load(FILE); {save}'
    if content.skipped:
        return (
            f'has no state dict, but objects of {shown(", ".join(content.skipped[:3]), 200)}, which are not loaded, '
            f'because that runs code. Save the state dict: model = torch.load(FILE, weights_only=False); {save}'
        )
    raise ValueError('it holds no dict of tensors by name')


def _arrays(tensors: Mapping[str, _Pending], storage_of: _Storages, size: int) -> Dict[str, np.ndarray]:
    """The values of tensors, as arrays of their own. What of a storage no tensor needs is not read."""
    extents: Dict[Tuple[str, str], int] = {}
    needed = 0
    for tensor in tensors.values():
        storage = (tensor.kind, tensor.key)
        extents[storage] = max(extents.get(storage, 0), tensor.extent)
        values = 1
        for length in tensor.shape:
            values *= length
        needed += values * np.dtype(_DTYPES[tensor.kind]).itemsize
    needed += sum(extent * np.dtype(_DTYPES[kind]).itemsize for (kind, _), extent in extents.items())
    bounds.check(needed, size)
    storages = {storage: storage_of(*storage, extent) for storage, extent in extents.items()}
    return {name: _view(storages[tensor.kind, tensor.key], tensor, name) for name, tensor in tensors.items()}


def _view(storage: np.ndarray, tensor: _Pending, name: str) -> np.ndarray:
    if tensor.extent > storage.size:
        raise ValueError(f'{name} has more values than its storage')
    strides = [stride * storage.itemsize for stride in tensor.strides]
    begin = tensor.offset if tensor.extent else 0
    values = np.lib.stride_tricks.as_strided(storage[begin:], tensor.shape, strides).copy()
    return (values.astype('<u4') << 16).view('<f4') if tensor.kind == _BFLOAT16 else values


def _from_archive(content: bytes) -> _Content:
    archive = zipfile.ZipFile(io.BytesIO(content))
    pickles = [name for name in archive.namelist() if name.endswith('/data.pkl')]
    if len(pickles) != 1:
        raise ValueError('the archive has no data.pkl')
    folder = pickles[0][: -len('data.pkl')]
    order = f'{folder}byteorder'
    if order in archive.namelist() and bounds.member(archive, order, 9) != b'little':
        raise ValueError('its numbers are not little-endian')

    def storage_of(kind: str, key: str, count: int) -> np.ndarray:
        dtype = np.dtype(_DTYPES[kind])
        return np.frombuffer(bounds.member(archive, f'{folder}data/{key}', count * dtype.itemsize), dtype)

    value, unpickler = _load(io.BytesIO(bounds.member(archive, pickles[0], _LONGEST_PICKLE)))
    return _Content(value, unpickler.skipped, storage_of)


def _from_pickles(content: bytes) -> _Content:
    file = io.BytesIO(content)
    if _load(file)[0] != _MAGIC:
        raise ValueError('it has not the signature of a PyTorch file')
    _load(file)  # The version of the layout.
    if not _load(file)[0]['little_endian']:
        raise ValueError('its numbers are not little-endian')
    value, unpickler = _load(file)
    keys: List[str] = _load(file)[0]
    storages: Dict[str, bytes] = {}
    for key in keys:
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        kind = unpickler.kinds[key]
        if kind not in _DTYPES:
            raise ValueError(f'it has values of the type {kind}')
        size = count * np.dtype(_DTYPES[kind]).itemsize
        storages[key] = file.read(size) if count >= 0 else b''
        if len(storages[key]) != size:
            raise EOFError('the file ends early')

    def storage_of(kind: str, key: str, count: int) -> np.ndarray:
        return np.frombuffer(storages[key], _DTYPES[kind])

    return _Content(value, unpickler.skipped, storage_of)


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
