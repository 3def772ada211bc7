"""Reads and writes PyTorch's state dicts without PyTorch: the tensors of a `.pth` file, and nothing that runs code.

Objects of other types, such as the arguments and the optimizer of a training script, are skipped. Both layouts of
`torch.save` are read: the ZIP archive since PyTorch 1.6, and the pickles in a row before it.
(https://pytorch.org/docs/stable/notes/serialization.html; torch/serialization.py names their parts.) By hand,
since PyTorch is larger than this program with TensorFlow. The library safetensors reads and writes its own files.
"""

import collections
import io
import pickle
import pickletools
import struct
import zipfile
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from inception_v3.weights.sources import archive_of, check_memory, member
from tools import extras

# The first pickle of the older layout is this number.
_MAGIC = 0x1950A86A20F9469CFC6C
# NumPy's types by PyTorch's names of storages, and by those of safetensors. NumPy has no bfloat16.
_BFLOAT16, _SAFE_BFLOAT16 = 'BFloat16Storage', 'BF16'
_TYPES = (
    ('DoubleStorage', 'F64', '<f8'),
    ('FloatStorage', 'F32', '<f4'),
    ('HalfStorage', 'F16', '<f2'),
    (_BFLOAT16, _SAFE_BFLOAT16, '<u2'),
    ('LongStorage', 'I64', '<i8'),
    ('IntStorage', 'I32', '<i4'),
    ('ShortStorage', 'I16', '<i2'),
    ('CharStorage', 'I8', '|i1'),
    ('ByteStorage', 'U8', '|u1'),
    ('BoolStorage', 'BOOL', '|b1'),
)
_DTYPES = {storage: np.dtype(dtype) for storage, _, dtype in _TYPES}
_SAFE_DTYPES = {safe: dtype for _, safe, dtype in _TYPES}
_NAMES = {dtype: storage for storage, _, dtype in _TYPES}
# Bytes of a pickle, and numbers of the objects that it names for later use; a state dict of 10,000 tensors has 2 MB.
_LONGEST_PICKLE = 1 << 23
# State dicts are at most so deep in the dicts of a training script.
_DEEPEST = 3
# Values in a setting, of which the names of 20,000 classes are the largest known.
_MOST_SETTINGS = 1_000_000
_SAVE = 'torch.save(model.state_dict(), NEW_FILE)'


class _Tensor(NamedTuple):
    """A tensor whose storage, of a kind and a key, is not read yet."""

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

    @property
    def bytes(self) -> int:
        """The bytes of its values."""
        size = _DTYPES[self.kind].itemsize
        for length in self.shape:
            size *= length
        return size


class TorchFile(NamedTuple):
    """The state dicts in a file of PyTorch by key, '' for the outermost, each with its tensors by name; and settings.

    Settings are the dicts in the file by key, and the arguments of the training script, without tensors and objects.
    """

    models: Dict[str, Dict[str, np.ndarray]]
    settings: Dict[str, Dict[str, Any]]


class _Skipped:
    """Stands for an object that is no tensor: takes all arguments, states and items, and does nothing."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def _ignore(self, *_: Any, **__: Any) -> '_Skipped':
        return self

    __call__ = __setstate__ = __setitem__ = append = extend = add = _ignore


def _rebuilt(storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> Any:
    if not isinstance(storage, tuple) or storage[0] not in _DTYPES:
        return _Skipped()
    kind, key = storage
    return _Tensor(kind, key, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _parameter(data: Any, *_: Any) -> Any:
    return data


class _Arguments(dict):
    """The attributes of an `argparse.Namespace`."""

    def __setstate__(self, state: Any) -> None:
        self.update(state if isinstance(state, dict) else {})


# All that a pickle may call.
_ALLOWED = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('torch._utils', '_rebuild_tensor'): _rebuilt,
    ('torch._utils', '_rebuild_tensor_v2'): _rebuilt,
    ('torch._utils', '_rebuild_parameter'): _parameter,
    ('torch._utils', '_rebuild_parameter_with_state'): _parameter,
    ('argparse', 'Namespace'): _Arguments,
    # Lightning's hyperparameters.
    ('pytorch_lightning.utilities.parsing', 'AttributeDict'): dict,
    ('lightning_fabric.utilities.data', 'AttributeDict'): dict,
    ('lightning.fabric.utilities.data', 'AttributeDict'): dict,
}


class _Unpickler(pickle.Unpickler):
    """Loads dicts, lists, numbers, strings and tensors, and `_Skipped` for anything else. Imports and calls nothing.

    Attributes:
      kinds: the kinds of storages by their keys.
    """

    def __init__(self, file: Any):
        super().__init__(file)
        self.kinds: Dict[str, str] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The constructors of state dicts and tensors; a name of a storage; or a class that does nothing."""
        if module == 'torch' and name.endswith('Storage'):
            return name
        return _ALLOWED.get((module, name), _Skipped)

    def persistent_load(self, pid: Any) -> Any:
        """Returns the kind and the key of a storage."""
        tag, kind, key, *_ = pid
        if tag != 'storage':
            return _Skipped()
        self.kinds[str(key)] = str(kind)
        return str(kind), str(key)


def _load(file: Any) -> Tuple[Any, _Unpickler]:
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


def read(content: bytes) -> TorchFile:
    """Reads the state dicts and the settings in a file of `torch.save`.

    Raises any error if the file is damaged, and ValueError if it has no state dict.
    """
    file = io.BytesIO(content)
    if zipfile.is_zipfile(file):
        archive = archive_of(content)
        pickles = [name for name in archive.namelist() if name.endswith('/data.pkl')]
        if len(pickles) != 1:
            raise ValueError('the archive has no data.pkl')
        folder = pickles[0][: -len('data.pkl')]
        order = f'{folder}byteorder'
        is_little = order not in archive.namelist() or member(archive, order) == b'little'
        value, unpickler = _load(io.BytesIO(member(archive, pickles[0])))

        def storage_of(kind: str, key: str) -> np.ndarray:
            return np.frombuffer(member(archive, f'{folder}data/{key}'), _DTYPES[kind])
    else:
        file.seek(0)
        if _load(file)[0] != _MAGIC:
            raise ValueError('it has not the signature of a PyTorch file')
        _load(file)  # The version of the layout.
        is_little = _load(file)[0]['little_endian']
        value, unpickler = _load(file)
        storages: Dict[str, np.ndarray] = {}
        for key in _load(file)[0]:
            (count,) = struct.unpack('<q', file.read(8))
            if unpickler.kinds[key] not in _DTYPES:
                raise ValueError(f'it has values of the type {unpickler.kinds[key]}')
            storages[key] = np.frombuffer(content, _DTYPES[unpickler.kinds[key]], max(count, 0), file.tell())
            file.seek(storages[key].nbytes, io.SEEK_CUR)

        def storage_of(kind: str, key: str) -> np.ndarray:
            return storages[key]

    if not is_little:
        raise ValueError('its numbers are not little-endian')
    dicts = _dicts(value)
    # An optimizer has its tensors under numbers.
    models = {
        key: {name: tensor for name, tensor in each.items() if isinstance(tensor, _Tensor) and name == str(name)}
        for key, each in dicts.items()
    }
    models = {key: tensors for key, tensors in models.items() if tensors}
    if not models:
        raise ValueError(f'it holds no dict of tensors by name; save one: {_SAVE}')
    tensors = [tensor for model in models.values() for tensor in model.values()]
    check_memory(sum(tensor.bytes for tensor in tensors), len(content))
    used = {storage: storage_of(*storage) for storage in {(tensor.kind, tensor.key) for tensor in tensors}}
    arrays = {
        key: {name: _view(used[tensor.kind, tensor.key], tensor, name) for name, tensor in model.items()}
        for key, model in models.items()
    }
    settings = {
        key: {name: value for name, value in each.items() if isinstance(name, str) and _is_plain(value)}
        for key, each in dicts.items()
    }
    return TorchFile(arrays, settings)


def _is_plain(value: Any) -> bool:
    """Whether a value is one of JSON, with tuples and numbers as keys, and neither large nor nested deeply.

    A pickle may name the same list often, so that values are counted, not bytes.
    """
    inner, count = [value], 0
    for _ in range(_DEEPEST + 1):
        inner = [each for each in inner if not isinstance(each, (type(None), str, int, float))]
        if not inner:
            return True
        following: List[Any] = []
        for each in inner:
            if not isinstance(each, (list, tuple, dict)) or isinstance(each, _Tensor):
                return False
            count += 2 * len(each)
            if count > _MOST_SETTINGS:
                return False
            following += [*each, *each.values()] if isinstance(each, dict) else each
        inner = following
    return False


def _dicts(content: Any) -> Dict[str, Dict[Any, Any]]:
    """The dicts in a dict, and that itself, by their keys with points between them."""
    found: Dict[str, Dict[Any, Any]] = {}
    seen = set()
    following: List[Tuple[Tuple[str, ...], Any]] = [((), content)]
    for keys, each in following:
        if isinstance(each, dict) and id(each) not in seen and len(keys) <= _DEEPEST:
            seen.add(id(each))
            found['.'.join(keys)] = each
            following += [((*keys, str(name)), value) for name, value in each.items() if isinstance(value, dict)]
    return found


def _view(storage: np.ndarray, tensor: _Tensor, name: str) -> np.ndarray:
    if tensor.extent > storage.size:
        raise ValueError(f'{name} has more values than its storage')
    strides = [stride * storage.itemsize for stride in tensor.strides]
    begin = tensor.offset if tensor.extent else 0
    values = np.lib.stride_tricks.as_strided(storage[begin:], tensor.shape, strides).copy()
    return _widened(values) if tensor.kind == _BFLOAT16 else values


def _widened(values: np.ndarray) -> np.ndarray:
    """The float32 numbers whose upper halves are the bits of bfloat16."""
    return (values.astype('<u4') << 16).view('<f4')


def write(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file for `torch.load` with a state dict: contiguous tensors, each with its own storage."""
    content = io.BytesIO()
    values = {f'data/{n}': np.ascontiguousarray(array).tobytes() for n, array in enumerate(arrays.values())}
    members = {'data.pkl': _pickled(arrays), **values, 'version': b'3\n'}
    # PyTorch reads only members that are not compressed.
    with zipfile.ZipFile(content, 'w', zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            # Without the time, so that the same weights give the same file.
            archive.writestr(zipfile.ZipInfo(f'archive/{name}'), data)
    return content.getvalue()


def _pickled(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The pickle of an OrderedDict of tensors. The module pickle itself writes no names of modules that are missing."""

    def name(module: str, attribute: str) -> bytes:
        return pickle.GLOBAL + f'{module}\n{attribute}\n'.encode()

    def text(value: str) -> bytes:
        return pickle.BINUNICODE + struct.pack('<I', len(value.encode())) + value.encode()

    def number(value: int) -> bytes:
        return pickle.BININT + struct.pack('<i', value)

    def numbers(values: Sequence[int]) -> bytes:
        return pickle.MARK + b''.join(map(number, values)) + pickle.TUPLE

    empty_dict = name('collections', 'OrderedDict') + pickle.EMPTY_TUPLE + pickle.REDUCE
    parts: List[bytes] = [pickle.PROTO + b'\x02', empty_dict, pickle.MARK]
    for place, (key, array) in enumerate(arrays.items()):
        parts += [text(key), name('torch._utils', '_rebuild_tensor_v2'), pickle.MARK, pickle.MARK, text('storage')]
        parts += [name('torch', _NAMES[array.dtype.str]), text(str(place)), text('cpu'), number(array.size)]
        strides = [stride // array.itemsize for stride in np.ascontiguousarray(array).reshape(array.shape).strides]
        # Offset, shape, strides, whether it needs a gradient, and hooks.
        parts += [pickle.TUPLE, pickle.BINPERSID, number(0), numbers(array.shape), numbers(strides)]
        parts += [pickle.NEWFALSE, empty_dict, pickle.TUPLE, pickle.REDUCE]
    return b''.join([*parts, pickle.SETITEMS, pickle.STOP])


def read_safetensors(content: bytes) -> Dict[str, np.ndarray]:
    """The arrays of a safetensors file, by name. Raises any error if the file is damaged."""
    arrays = {}
    for name, tensor in _safetensors().deserialize(content):
        values = np.frombuffer(tensor['data'], _SAFE_DTYPES[tensor['dtype']])
        arrays[name] = (_widened(values) if tensor['dtype'] == _SAFE_BFLOAT16 else values).reshape(tensor['shape'])
    return arrays


def write_safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file of arrays."""
    # PyTorch and timm mark their files with it.
    return bytes(_safetensors().numpy.save(dict(arrays), {'format': 'pt'}))


def _safetensors() -> Any:
    extras.require('weights', 'safetensors')
    import safetensors.numpy

    return safetensors
