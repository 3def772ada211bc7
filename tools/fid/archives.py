"""Archives of generated images, as the samplers of guided-diffusion and its successors write them.

An archive is an .npz file whose array `arr_0` has the images, uint8 [images, height, width, 3]. Labels, in `arr_1`, are
not needed. Archives are read image by image, because the published ones of 50,000 images are larger than the memory of
many machines.
"""

import contextlib
import os
import zipfile
from typing import Any, Iterator, List, NamedTuple, Tuple

import numpy as np

from compat.errors import CommandError
from console import inputs
from data import remote
from inception_v3.weights.sources import check_members, damage_explained
from preprocessing.decoding import MAX_PIXELS
from tools.features import FILES_OF_2015

IMAGES = 'arr_0'
_AXES, _CHANNELS = 4, 3
# A ZIP archive's last record, 22 bytes and a comment, is within this many bytes of its end.
_END_BYTES = (1 << 16) + 22
_KIND = 'NumPy file of arrays'


class Archive(NamedTuple):
    """An archive of images, whose shape is (images, height, width, 3)."""

    path: str
    shape: Tuple[int, ...]

    def images(self) -> Iterator[np.ndarray]:
        """Yields the images, uint8 [height, width, 3]. Raises WeightsError if the file is damaged."""
        count, *of_image = self.shape
        size = int(np.prod(of_image))
        with damage_explained(self.path, _KIND), _opened(self.path) as (_, file):
            for _ in range(count):
                yield np.frombuffer(file.read(size), np.uint8).reshape(of_image)


def names_in(path: str) -> List[str]:
    """The names of the arrays in a local .npz file; empty if it is missing or remote.

    Raises WeightsError if the file is damaged.
    """
    if remote.is_remote(path) or not os.path.isfile(path):
        return []
    with damage_explained(path, _KIND):
        with open(path, 'rb') as file:
            file.seek(max(0, os.path.getsize(path) - _END_BYTES))
            check_members(file.read())
        archive = zipfile.ZipFile(path)
    with archive:
        return [name[: -len('.npy')] for name in archive.namelist() if name.endswith('.npy')]


def find(path: str, has_weights: bool) -> Archive:
    """Finds the images of an archive.

    Raises:
      CommandError: the array does not hold images, or no weights are given to extract features with.
      WeightsError: the file is damaged.
    """
    with damage_explained(path, _KIND), _opened(path) as (header, _):
        shape, is_fortran, dtype = header
    is_batch = len(shape) == _AXES and shape[-1] == _CHANNELS and 0 < shape[1] * shape[2] <= MAX_PIXELS and shape[0]
    if dtype != np.uint8 or not is_batch or is_fortran:
        raise CommandError(
            f'{path}: {IMAGES} is {dtype} {[*shape]}; images are uint8 [images, height, width, {_CHANNELS}], as '
            'samplers of guided-diffusion write them.'
        )
    if not has_weights:
        raise CommandError(f'{path}: holds images, which need --weights, a file of the weights: {FILES_OF_2015}.')
    return Archive(path, shape)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Tuple[Any, Any]]:
    """Yields the header of the images' array (shape, whether in Fortran order, type), and the file at its values."""
    inputs.check(path)
    with zipfile.ZipFile(path) as archive, archive.open(f'{IMAGES}.npy') as file:
        if np.lib.format.read_magic(file) != (1, 0):
            # Later versions of the format have headers of up to 4 GiB, for arrays of records.
            raise ValueError(f'{IMAGES} is not an array of numbers')
        yield np.lib.format.read_array_header_1_0(file), file
