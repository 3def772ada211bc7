"""Reads published tar archives with `tarfile`, and detects damage that `tarfile` treats as the end."""

import contextlib
import io
import tarfile
from typing import Any, BinaryIO, Callable, Iterator, Tuple

from compat import tf
from compat.messages import shown
from console import inputs
from data import remote
from data.records import DataError

_BLOCK = 512
# The largest file that `files_in` reads, in bytes: over twice the largest such file in a published archive.
_LARGEST_FILE = 1 << 26


def read_file(path: str) -> bytes:
    """The content of a local or remote file."""
    try:
        with remote.opened(path, inputs.WEIGHTS_BYTES) as file:
            content = file.read()
    except tf.errors.OpError as error:
        raise DataError(f'{path}: cannot be read: {error.message}')
    if not content:
        # On s3://, a file whose read is denied appears to be empty.
        remote.check_readable(path)
    return content


@contextlib.contextmanager
def explained(path: str, kind: str = 'a tar archive') -> Iterator[None]:
    """Turns errors about a damaged file into a DataError; `tarfile`, SciPy and others raise errors of any type."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = getattr(error, 'strerror', None)
        if reason:
            raise DataError(f'{path}: cannot be read: {reason}.')
        reason = shown(error) or type(error).__name__
        raise DataError(f'{path}: damaged, or not {kind} ({reason}). Download it again.')


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


def members(file: BinaryIO, mode: str) -> Iterator[Tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yields an archive with each of its members, in order, up to the zeros at its end; mode 'r' detects compression.

    Call it inside `explained`: for a damaged or truncated archive, `tarfile` raises errors of any type.
    """
    with tarfile.open(fileobj=file, mode=mode, tarinfo=_Header) as archive:
        for member in iter(archive.next, None):
            archive.members.clear()  # type: ignore[attr-defined]  # Otherwise, `tarfile` keeps all members in memory.
            # An extension header may change the size.
            _check_size(member, member.offset)
            if archive.offset <= member.offset:
                raise tarfile.ReadError(f'the header at byte {member.offset:,} points backwards')
            yield archive, member
        if mode == 'r':
            # Reading to the end verifies the checksum of a compressed archive.
            while archive.fileobj.read(1 << 20):  # type: ignore[union-attr]
                pass


def files_in(path: str, is_wanted: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """Yields the names and contents of wanted files in a small, perhaps compressed archive; verifies its checksum."""
    content = io.BytesIO(read_file(path))
    with explained(path):
        for archive, member in members(content, 'r'):
            if member.isfile() and is_wanted(member.name):
                # `tarfile` loops forever if the pieces of a sparse file overlap. Published archives have none.
                if member.issparse() or member.size > _LARGEST_FILE:
                    raise tarfile.ReadError(f'{member.name} is sparse, or has {member.size:,} bytes')
                yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
