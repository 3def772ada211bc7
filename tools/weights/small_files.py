"""Reads small files beside weights, such as lists of names, whole and with a bound."""

import os

from compat import tf
from data import remote
from inception_v3.weights.sources import WeightsError

# Bytes of a list of names or of settings; those of ImageNet have 100,000.
MOST = 1 << 24


def content_of(path: str, flag: str) -> bytes:
    """The content of a file of at most `MOST` bytes; messages begin with the flag.

    Raises:
      WeightsError: there is no such file, it is a device, a pipe or a folder, or larger.
      RemoteError: access is denied, or the store cannot be reached.
    """
    if not remote.exists(path):
        raise WeightsError(f'{flag}: no such file.')
    if tf.io.gfile.isdir(path) or (not remote.is_remote(path) and not os.path.isfile(path)):
        raise WeightsError(f'{flag}: is no regular file.')
    with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
        content = bytes(file.read(MOST + 1))
    if len(content) > MOST:
        raise WeightsError(f'{flag}: is larger than {MOST:,} bytes.')
    return content
