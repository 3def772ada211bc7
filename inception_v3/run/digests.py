"""SHA-256 digests of the variables of a checkpoint or of a training step, and of a checkpoint's index."""

import hashlib

from console.tensorflow_versions import tf
from data import remote
from inception_v3.weights.model_dir import digest_of_values as of_values


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
