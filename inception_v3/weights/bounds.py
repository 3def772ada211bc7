"""Bounds on the memory that a file of weights takes, whatever the file claims."""

import zipfile

# Tensors may need so many bytes, or so many times the bytes of their file. Only compression needs more than once.
_SMALL, _TIMES = 1 << 28, 16
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def check(needed: int, size: int) -> None:
    """Checks, before anything is inflated or allocated, that tensors are in proportion to their file.

    Args:
      needed: bytes of all the tensors that the file declares.
      size: bytes of the file.

    Raises:
      ValueError: they are not.
    """
    if needed > max(_SMALL, _TIMES * size):
        raise ValueError(f'its tensors need {needed:,} bytes of memory, too many for a file of {size:,} bytes')


def member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The first bytes of a member of an archive, at most `most`; no others are inflated.

    Raises:
      ValueError: the member is compressed by a method that cannot inflate a part.
    """
    if archive.getinfo(name).compress_type not in _METHODS:
        raise ValueError(f'{name} is compressed by another method than deflate')
    with archive.open(name) as file:
        return file.read(most)
