"""Writes PyTorch's state dicts without PyTorch."""

import io
import zipfile
from typing import Iterable, Mapping

import numpy as np

_ORDERED_DICT = b'ccollections\nOrderedDict\n)R'
_STORAGES = {'<f4': b'FloatStorage', '<f8': b'DoubleStorage', '<i8': b'LongStorage'}


def state_dict(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The file that `torch.save` writes for a state dict of contiguous tensors: an archive with a pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        pickled = b'\x80\x02' + _ORDERED_DICT + b'('
        for number, (name, values) in enumerate(tensors.items()):
            storage = text('storage') + b'ctorch\n' + _STORAGES[values.dtype.str] + b'\n' + text(str(number))
            pickled += text(name) + b'ctorch._utils\n_rebuild_tensor_v2\n(('
            pickled += storage + text('cpu') + _number(values.size) + b'tQ' + _number(0)
            pickled += _numbers(values.shape) + _numbers([s // values.itemsize for s in values.strides])
            pickled += b'\x89' + _ORDERED_DICT + b'tR'
            archive.writestr(f'archive/data/{number}', values.tobytes())
        archive.writestr('archive/data.pkl', pickled + b'u.')
        archive.writestr('archive/version', b'3\n')
    return file.getvalue()


def text(value: str) -> bytes:
    """The pickle of a text."""
    return b'X' + len(value.encode()).to_bytes(4, 'little') + value.encode()


def _number(number: int) -> bytes:
    return b'J' + number.to_bytes(4, 'little')


def _numbers(numbers: Iterable[int]) -> bytes:
    return b'(' + b''.join(map(_number, numbers)) + b't'
