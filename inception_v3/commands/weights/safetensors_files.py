"""Reads and writes safetensors files: a JSON header with the place of each tensor, and the bytes of all tensors.

The format: https://github.com/huggingface/safetensors#format.
"""

import json
import struct
from typing import Any, Dict, Mapping

import numpy as np

from inception_v3.weights.sources import check_memory

# NumPy has no bfloat16, whose bits are the upper half of a float32.
_BFLOAT16 = 'BF16'
_DTYPES = {
    **{'F64': '<f8', 'F32': '<f4', 'F16': '<f2', _BFLOAT16: '<u2'},
    **{'I64': '<i8', 'I32': '<i4', 'I16': '<i2', 'I8': '|i1', 'U8': '|u1', 'BOOL': '|b1'},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_METADATA = '__metadata__'


def read(content: bytes) -> Dict[str, np.ndarray]:
    """The arrays of a file, by name.

    Raises:
      ValueError, KeyError, TypeError or struct.error: the file is damaged or no safetensors file.
    """
    (length,) = struct.unpack_from('<Q', content)
    begin = 8 + length
    if begin > len(content):
        raise ValueError('it is shorter than its header')
    header = json.loads(content[8:begin].decode())
    header.pop(_METADATA, None)
    places = {name: entry['data_offsets'] for name, entry in header.items()}
    # Tensors may share bytes.
    check_memory(2 * sum(last - first for first, last in places.values()), len(content))
    arrays = {}
    for name, entry in header.items():
        first, last = places[name]
        if not 0 <= first <= last <= len(content) - begin:
            raise ValueError(f'it ends before the values of {name}')
        if min(entry['shape'], default=0) < 0:
            raise ValueError(f'{name} has the shape {entry["shape"]}')
        values = np.frombuffer(content[begin + first : begin + last], _DTYPES[entry['dtype']])
        if entry['dtype'] == _BFLOAT16:
            values = (values.astype('<u4') << 16).view('<f4')
        arrays[name] = values.reshape(entry['shape'])
    return arrays


def write(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file of arrays, in their order."""
    # PyTorch and timm mark their files with it.
    header: Dict[str, Any] = {_METADATA: {'format': 'pt'}}
    parts, offset = [], 0
    for name, array in arrays.items():
        part = np.ascontiguousarray(array).tobytes()
        places = [offset, offset + len(part)]
        header[name] = {'dtype': _NAMES[array.dtype.str], 'shape': [*array.shape], 'data_offsets': places}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header).encode()
    # The values begin at a multiple of 8 bytes.
    text += b' ' * (-len(text) % 8)
    return b''.join([struct.pack('<Q', len(text)), text, *parts])
