"""Files of PyTorch training scripts, with objects besides the weights."""

import argparse
import collections
import io
import os
import pathlib
import pickle
import zipfile
from typing import Any, Mapping

import numpy as np

from tools.weights import state_dicts


def _text(value: str) -> bytes:
    """The pickle of a text."""
    return b'X' + len(value.encode()).to_bytes(4, 'little') + value.encode()


class Harmful:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ('echo unpickled > harmed',)


class Optimizer:
    """An object with a state that a training script saves beside the weights."""

    def __init__(self) -> None:
        self.lr, self.harmful = 0.1, Harmful()


def with_training_state(tensors: Mapping[str, Mapping[str, np.ndarray]], protocol: int = 2) -> bytes:
    """A file of `torch.save` that has state dicts under keys, among objects of other types."""
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
            with zipfile.ZipFile(io.BytesIO(state_dicts.write(arrays))) as own:
                # Each storage is named by the number of the state dict, then that of the tensor.
                inner = own.read('archive/data.pkl')[2:-1]
                for tensor in range(len(arrays)):
                    archive.writestr(f'x/data/{number}_{tensor}', own.read(f'archive/data/{tensor}'))
                    inner = inner.replace(_text(str(tensor)) + _text('cpu'), _text(f'{number}_{tensor}') + _text('cpu'))
            pickled += _text(key) + inner
        archive.writestr('x/data.pkl', pickled + b'u.')
    return file.getvalue()
