"""Reads CIFAR-10 as published, in the binary or the Python version, without trusting the files.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Both versions have the same images in the
same order: five batches of 10,000 training images, one of test images, and the names of the ten classes.
"""

import hashlib
import io
import os
import pickle
import tarfile
from typing import Any, Dict, List, NamedTuple

import numpy as np

from console.messages import shown
from console.tensorflow_versions import tf
from data import records, remote
from data.convert import archives
from data.records import DataError

SIDE = 32
CLASSES = 10
_BATCH_IMAGES = 10000
_IMAGE_BYTES = 3 * SIDE * SIDE

_BATCHES = {records.TRAIN: [f'data_batch_{number}' for number in range(1, 6)], records.VALIDATION: ['test_batch']}
# The ending of the batches' names in the binary and in the Python version, and the file of the classes' names.
_VERSIONS = {'.bin': 'batches.meta.txt', '': 'batches.meta'}
# The files of both versions.
_NAMES = {
    *_VERSIONS.values(),
    *(name + ending for names in _BATCHES.values() for name in names for ending in _VERSIONS),
}

# The classes and functions in the pickle of an array.
_ARRAY_TYPES = (
    ('numpy.core.multiarray', '_reconstruct'),
    ('numpy._core.multiarray', '_reconstruct'),
    ('numpy', 'ndarray'),
    ('numpy', 'dtype'),
)
_ADVICE = 'Download it again from https://www.cs.toronto.edu/~kriz/cifar.html.'


class Images(NamedTuple):
    """The images of a split.

    Attributes:
      pixels: uint8 [images, 32, 32, 3], RGB.
      labels: int64 [images], 0 to 9.
    """

    pixels: np.ndarray
    labels: np.ndarray


class Cifar10(NamedTuple):
    """The whole data set.

    Attributes:
      splits: by the split's name in `data.records`; test images are validation images.
      class_names: by label.
      digest: SHA-256 of all pixels and labels, in hexadecimal digits.
    """

    splits: Dict[str, Images]
    class_names: List[str]
    digest: str


def read(source: str) -> Cifar10:
    """Reads and checks the data set.

    Args:
      source: an archive, cifar-10-binary.tar.gz or cifar-10-python.tar.gz, or the folder that it unpacks to; local or
        remote.

    Raises:
      DataError: it does not exist, or is not the complete CIFAR-10 as published.
      RemoteError: access is denied, or the store cannot be reached.
    """
    files = _files(source)
    for ending, meta in _VERSIONS.items():
        names = {split: [name + ending for name in batches] for split, batches in _BATCHES.items()}
        wanted = {meta, *(name for of_split in names.values() for name in of_split)}
        missing = sorted(wanted - set(files))
        if len(missing) == len(wanted):
            continue
        if missing:
            raise DataError(f'{source}: incomplete CIFAR-10: {", ".join(missing)} missing. {_ADVICE}')
        splits = {}
        for split, of_split in names.items():
            batches = [_batch(files[name], f'{source}, {name}', bool(ending)) for name in of_split]
            splits[split] = Images(*(np.ascontiguousarray(np.concatenate(parts)) for parts in zip(*batches)))
        hashed = hashlib.sha256()
        for part in splits.values():
            hashed.update(part.pixels)
            hashed.update(part.labels.astype('<i8'))
        class_names = _class_names(files[meta], f'{source}, {meta}', bool(ending))
        return Cifar10(splits, class_names, hashed.hexdigest())
    raise DataError(
        f'{source}: not CIFAR-10: it has neither data_batch_1.bin nor data_batch_1. Name its archive, '
        'cifar-10-binary.tar.gz or cifar-10-python.tar.gz, or the folder that it unpacks to, cifar-10-batches-bin or '
        'cifar-10-batches-py.'
    )


def _files(source: str) -> Dict[str, bytes]:
    """The contents of those files of either version that are present, by name without folder."""
    try:
        with remote.explained(source, remote.READ):
            is_folder = tf.io.gfile.isdir(source)
        if is_folder:
            names = _NAMES & set(remote.names_in(source) or ())
            return {name: remote.read(os.path.join(source, name)) or b'' for name in names}
        content = remote.read(source)
    except tf.errors.OpError as error:
        raise DataError(f'{source}: cannot be read: {error.message}')
    if content is None:
        raise DataError(f'{source}: no such file or folder.')
    try:
        found = archives.files_in(content, lambda name: os.path.basename(name) in _NAMES)
        return {os.path.basename(name): of_file for name, of_file in found}
    except tarfile.ReadError as error:
        raise DataError(f'{source}: damaged, or not a tar archive ({error}). {_ADVICE}')


def _batch(content: bytes, where: str, is_binary: bool) -> Images:
    if is_binary:
        rows = _BATCH_IMAGES * (1 + _IMAGE_BYTES)
        if len(content) != rows:
            raise DataError(f'{where}: {len(content):,} bytes; {_BATCH_IMAGES:,} images have {rows:,}. {_ADVICE}')
        values = np.frombuffer(content, np.uint8).reshape(_BATCH_IMAGES, 1 + _IMAGE_BYTES)
        labels, flat = values[:, 0].astype(np.int64), values[:, 1:]
    else:
        batch = _unpickled(content, where)
        stored, numbers = [_entry(batch, key) if isinstance(batch, dict) else None for key in ('data', 'labels')]
        pixels: Any = stored.content([_BATCH_IMAGES, _IMAGE_BYTES]) if isinstance(stored, _Stored) else None
        sound = isinstance(numbers, list) and len(numbers) == _BATCH_IMAGES and all(type(n) is int for n in numbers)
        if pixels is None or not sound:
            raise DataError(
                f'{where}: not a batch of CIFAR-10: it must be a dictionary with "data", {_BATCH_IMAGES:,} rows of '
                f'{_IMAGE_BYTES:,} bytes, and "labels", {_BATCH_IMAGES:,} integers. {_ADVICE}'
            )
        # Clipped, so that wrong labels of any size fit into 64 bits.
        labels, flat = np.array([min(max(n, -1), CLASSES) for n in numbers or ()], np.int64), pixels
    wrong = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if len(wrong):
        raise DataError(
            f'{where}: {len(wrong):,} of {_BATCH_IMAGES:,} labels are not in 0 to {CLASSES - 1} (first: image '
            f'{wrong[0]:,}). {_ADVICE}'
        )
    planes = flat.reshape(_BATCH_IMAGES, 3, SIDE, SIDE)
    return Images(planes.transpose(0, 2, 3, 1), labels)


def _class_names(content: bytes, where: str, is_binary: bool) -> List[str]:
    try:
        if is_binary:
            names = [line for line in content.decode().splitlines() if line.strip()]
        else:
            stored = _entry(_unpickled(content, where), 'label_names')
            names = [name if isinstance(name, str) else name.decode() for name in stored]
    except (TypeError, AttributeError, UnicodeDecodeError):
        names = []
    if len(names) != CLASSES:
        raise DataError(f'{where}: does not hold the names of {CLASSES} classes. {_ADVICE}')
    return names


def _entry(pickled: Any, key: str) -> Any:
    """The value of a key in a dictionary that Python 2 (keys are bytes) or Python 3 pickled."""
    return pickled.get(key.encode(), pickled.get(key))


class _Stored:
    """A placeholder for an array or its type in a pickle, which only stores its arguments and state."""

    def __init__(self, *arguments: Any):
        self._arguments = arguments
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def content(self, shape: List[int]) -> Any:
        """The values of an array of bytes, uint8, in the given shape; None if this is not such an array."""
        if not isinstance(self._state, tuple) or len(self._state) != 5:
            return None
        _, own_shape, dtype, is_transposed, content = self._state
        is_bytes = isinstance(dtype, _Stored) and dtype._arguments[:1] in ((b'u1',), ('u1',))
        is_bytes = is_bytes and isinstance(content, bytes)
        if not is_bytes or is_transposed or own_shape != tuple(shape) or len(content) != np.prod(shape):
            return None
        return np.frombuffer(content, np.uint8).reshape(shape)


class _Unpickler(pickle.Unpickler):
    """Reads numbers, strings, containers and arrays. Any other class or function in a pickle could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAY_TYPES:
            return _Stored
        if (module, name) == ('_codecs', 'encode'):
            return _bytes_of
        raise DataError(f'refers to {module}.{name}, which could run code, and which CIFAR-10 does not use')


def _bytes_of(letters: str, encoding: str) -> bytes:
    """Decodes bytes that Python 3 pickled for Python 2, as a string with one character per byte."""
    if encoding != 'latin1':
        raise ValueError(f'bytes in {encoding}')
    return letters.encode('latin1')


def _unpickled(content: bytes, where: str) -> Any:
    try:
        # Python 2 wrote the published files; its strings are bytes.
        return _Unpickler(io.BytesIO(content), encoding='bytes').load()
    except DataError as error:
        raise DataError(f'{where}: {shown(error, 200)}. The file was not loaded. {_ADVICE}')
    except Exception as error:  # A damaged pickle raises errors of any type.
        raise DataError(f'{where}: damaged, or not a pickle ({shown(error) or type(error).__name__}). {_ADVICE}')
