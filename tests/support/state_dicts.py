"""Writes PyTorch's state dicts without PyTorch."""

import argparse
import collections
import io
import os
import pathlib
import pickle
import zipfile
from typing import Any, Iterable, Mapping

import numpy as np

_ORDERED_DICT = b'ccollections\nOrderedDict\n)R'
_STORAGES = {'<f4': b'FloatStorage', '<f8': b'DoubleStorage', '<i8': b'LongStorage'}


def state_dict(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The file that `torch.save` writes for a state dict of contiguous tensors: an archive with a pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        pickled = b'\x80\x02' + _ORDERED_DICT + b'('
        for number, (name, values) in enumerate(tensors.items()):
            storage = _text('storage') + b'ctorch\n' + _STORAGES[values.dtype.str] + b'\n' + _text(str(number))
            pickled += _text(name) + b'ctorch._utils\n_rebuild_tensor_v2\n(('
            pickled += storage + _text('cpu') + _number(values.size) + b'tQ' + _number(0)
            pickled += _numbers(values.shape) + _numbers([s // values.itemsize for s in values.strides])
            pickled += b'\x89' + _ORDERED_DICT + b'tR'
            archive.writestr(f'archive/data/{number}', values.tobytes())
        archive.writestr('archive/data.pkl', pickled + b'u.')
        archive.writestr('archive/version', b'3\n')
    return file.getvalue()


def _text(value: str) -> bytes:
    """The pickle of a text."""
    return b'X' + len(value.encode()).to_bytes(4, 'little') + value.encode()


def _number(number: int) -> bytes:
    return b'J' + number.to_bytes(4, 'little')


def _numbers(numbers: Iterable[int]) -> bytes:
    return b'(' + b''.join(map(_number, numbers)) + b't'


class Harmful:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ('echo unpickled > harmed',)


class Optimizer:
    """An object with a state that a training script saves beside the weights."""

    def __init__(self) -> None:
        self.lr, self.harmful = 0.1, Harmful()


def with_training_state(tensors: Mapping[str, Mapping[str, np.ndarray]], protocol: int = 2) -> bytes:
    """A file of `torch.save` with state dicts under keys, between objects of other types."""
    others = {
        'args': argparse.Namespace(lr=Harmful(), path=pathlib.PurePosixPath('a')),
        'epoch': 3,
        'optimizer': Optimizer(),
        'items': [collections.Counter('ab'), collections.deque([1, 2]), {1, 2}, np.float64(3), np.arange(3)],
    }
    file = io.BytesIO()
    pickled = pickle.dumps(others, protocol)[:-1] + b'('
    with zipfile.ZipFile(file, 'w') as archive:
        for number, (key, arrays) in enumerate(tensors.items()):
            with zipfile.ZipFile(io.BytesIO(state_dict(arrays))) as own:
                # Storages of their own: the number of the state dict before that of the tensor.
                inner = own.read('archive/data.pkl')[2:-1]
                for tensor in range(len(arrays)):
                    archive.writestr(f'x/data/{number}_{tensor}', own.read(f'archive/data/{tensor}'))
                    inner = inner.replace(_text(str(tensor)) + _text('cpu'), _text(f'{number}_{tensor}') + _text('cpu'))
            pickled += _text(key) + inner
        archive.writestr('x/data.pkl', pickled + b'u.')
    return file.getvalue()
