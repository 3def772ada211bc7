"""What tells the variables of one checkpoint, or of one step, from all others: a digest of their names and values."""

import hashlib
from typing import Dict

import numpy as np
import tensorflow as tf


def of_values(values: Dict[str, np.ndarray]) -> str:
    """The SHA-256 of names, types, shapes and values, in the order of the names: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(values):
        value = np.asarray(values[name])
        digest.update(f'{name} {value.dtype} {value.shape}\n'.encode())
        digest.update(np.ascontiguousarray(value))
    return digest.hexdigest()


def of_checkpoint(checkpoint: str) -> str:
    """The digest of a checkpoint: that of all the variables when it was written.

    Raises:
      tf.errors.OpError: it cannot be read, or is damaged.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    return of_values({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
