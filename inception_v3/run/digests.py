"""SHA-256 digests of the variables of a checkpoint or of a training step, and of a checkpoint's index."""

import hashlib
from typing import Dict

import numpy as np

from console.tensorflow_versions import tf
from data import remote


def of_values(values: Dict[str, np.ndarray]) -> str:
    """The SHA-256 digest of names, types, shapes and values, in the order of the names: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(values):
        value = np.asarray(values[name])
        digest.update(f'{name} {value.dtype} {value.shape}\n'.encode())
        digest.update(np.ascontiguousarray(value))
    return digest.hexdigest()


def of_index(checkpoint: str) -> str:
    """The digest of a checkpoint's index, which has a checksum of each variable; empty if the checkpoint is gone."""
    index = remote.read(f'{checkpoint}.index')
    return hashlib.sha256(index).hexdigest() if index else ''


def of_checkpoint(checkpoint: str) -> str:
    """The digest of all variables in a checkpoint. It equals `of_values` of the variables when they were saved.

    Raises:
      tf.errors.OpError: the checkpoint cannot be read, or is damaged.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    return of_values({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
