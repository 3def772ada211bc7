"""Tar archives from elsewhere, read by Python's tarfile, which takes much of what is damaged for the end of one."""

import io
import tarfile
from typing import Any, BinaryIO, Callable, Iterator, Tuple

from console.messages import shown

_BLOCK = 512
# What is read as a whole has not half as many bytes in any archive that is published.
_LARGEST_FILE = 1 << 26


class _Header(tarfile.TarInfo):
    """A header that must be one.

    Python's tarfile ends an archive where no header is, and a size below 0 sends it back to the same one for ever.
    """

    @classmethod
    def fromtarfile(cls, archive: Any) -> '_Header':
        place = archive.fileobj.tell()
        block = archive.fileobj.read(_BLOCK)
        try:
            header: Any = cls.frombuf(block, archive.encoding, archive.errors)
        except tarfile.HeaderError:
            if len(block) == _BLOCK and not any(block):
                # The end.
                raise
            raise tarfile.ReadError(f'no header at byte {place:,}')
        _check_size(header, place)
        header.offset = place
        return header._proc_member(archive)


def _check_size(header: tarfile.TarInfo, place: int) -> None:
    if header.size < 0:
        raise tarfile.ReadError(f'the header at byte {place:,} says {header.size:,} bytes')


def opened(file: BinaryIO, mode: str) -> tarfile.TarFile:
    """An archive, for `members`.

    Args:
      file: the archive, from its beginning on.
      mode: tarfile's: 'r' finds out how it is compressed, 'r:' takes it as it is.

    Raises:
      Exception: as `members`.
    """
    return tarfile.open(fileobj=file, mode=mode, tarinfo=_Header)


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members of an archive that was `opened`, in order, up to the zeros that end it.

    Raises:
      OSError: the file cannot be read.
      Exception: the archive is damaged, or cut short. What is damaged fails in any way.
    """
    for member in iter(archive.next, None):
        archive.members.clear()  # type: ignore[attr-defined]  # It would keep all that it has seen.
        # What extends a header may say another size.
        _check_size(member, member.offset)
        if archive.offset <= member.offset:
            raise tarfile.ReadError(f'the header at byte {member.offset:,} leads back')
        yield member


def files_in(content: bytes, is_wanted: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """The names and contents of files in a small archive, compressed or not. All of it is read, and its checksum.

    Args:
      content: of the archive.
      is_wanted: whether a file is to be read, by its name.

    Raises:
      tarfile.ReadError: the archive is damaged, or cut short, or is none. The files before that may have been given.
    """
    try:
        with opened(io.BytesIO(content), 'r') as archive:
            for member in members(archive):
                if member.isfile() and is_wanted(member.name):
                    _check_content(member)
                    yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
            while archive.fileobj.read(1 << 20):  # type: ignore[union-attr]
                pass
    except Exception as error:  # What is damaged fails in any way.
        raise tarfile.ReadError(shown(error) or type(error).__name__)


def _check_content(member: Any) -> None:
    if member.size > _LARGEST_FILE:
        raise tarfile.ReadError(f'{member.name} has {member.size:,} bytes')
    # Of a file with holes; for what is in none of its pieces, and in no hole between two, tarfile looks for ever.
    pieces = member.sparse or []
    if any(start + size > following for (start, size), (following, _) in zip(pieces, pieces[1:])):
        raise tarfile.ReadError(f'{member.name} has pieces that are not in order')
