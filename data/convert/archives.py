"""Reads published tar archives with `tarfile`, and detects damage that `tarfile` treats as the end."""

import io
import tarfile
from typing import Any, BinaryIO, Callable, Iterator, Tuple

from console.messages import shown

_BLOCK = 512
# The largest file that `files_in` reads, in bytes: over twice the largest such file in a published archive.
_LARGEST_FILE = 1 << 26


class _Header(tarfile.TarInfo):
    """A header whose parsing fails if it is invalid.

    `tarfile` silently ends an archive at an invalid header, and loops forever at a negative size.
    """

    @classmethod
    def fromtarfile(cls, archive: Any) -> '_Header':
        place = archive.fileobj.tell()
        block = archive.fileobj.read(_BLOCK)
        try:
            header: Any = cls.frombuf(block, archive.encoding, archive.errors)
        except tarfile.HeaderError:
            if len(block) == _BLOCK and not any(block):
                # The end of the archive.
                raise
            raise tarfile.ReadError(f'no valid header at byte {place:,}')
        _check_size(header, place)
        header.offset = place
        return header._proc_member(archive)


def _check_size(header: tarfile.TarInfo, place: int) -> None:
    if header.size < 0:
        raise tarfile.ReadError(f'the header at byte {place:,} claims a size of {header.size:,} bytes')


def opened(file: BinaryIO, mode: str) -> tarfile.TarFile:
    """Opens an archive for `members`.

    Args:
      file: the archive, positioned at its beginning.
      mode: as in `tarfile`: 'r' detects compression, 'r:' expects none.

    Raises:
      Exception: as `members`.
    """
    return tarfile.open(fileobj=file, mode=mode, tarinfo=_Header)


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an archive from `opened`, in order, up to the zeros at its end.

    Raises:
      OSError: the file cannot be read.
      Exception: the archive is damaged or truncated; `tarfile` raises errors of any type for it.
    """
    for member in iter(archive.next, None):
        archive.members.clear()  # type: ignore[attr-defined]  # Otherwise, `tarfile` keeps all members in memory.
        # An extension header may change the size.
        _check_size(member, member.offset)
        if archive.offset <= member.offset:
            raise tarfile.ReadError(f'the header at byte {member.offset:,} points backwards')
        yield member


def files_in(content: bytes, is_wanted: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """Yields the names and contents of files in a small archive, compressed or not, and verifies its checksum.

    Args:
      content: the archive.
      is_wanted: whether to read a file, given its name.

    Raises:
      tarfile.ReadError: the archive is damaged or truncated, or not an archive. Files before the damage may have been
        yielded.
    """
    try:
        with opened(io.BytesIO(content), 'r') as archive:
            for member in members(archive):
                if member.isfile() and is_wanted(member.name):
                    _check_content(member)
                    yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
            while archive.fileobj.read(1 << 20):  # type: ignore[union-attr]
                pass
    except Exception as error:  # `tarfile` raises errors of any type for a damaged archive.
        raise tarfile.ReadError(shown(error) or type(error).__name__)


def _check_content(member: Any) -> None:
    if member.size > _LARGEST_FILE:
        raise tarfile.ReadError(f'{member.name} has {member.size:,} bytes')
    # The pieces of a sparse file. `tarfile` loops forever if they overlap.
    pieces = member.sparse or []
    if any(start + size > following for (start, size), (following, _) in zip(pieces, pieces[1:])):
        raise tarfile.ReadError(f'{member.name} has overlapping pieces')
