"""Writing of tar files."""

import io
import pathlib
import tarfile
from typing import Any, Iterable, Tuple

Files = Iterable[Tuple[str, bytes]]


def tar_of(files: Files, tar_format: int = tarfile.USTAR_FORMAT, mode: str = 'w', **header: Any) -> bytes:
    """A tar file of (name, content); `header` sets fields of each member. A content `-> NAME` is a hard link."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tar_format) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            if content.startswith(b'-> '):
                member.type, member.linkname, content = tarfile.LNKTYPE, content[3:].decode(), b''
            member.size = len(content)
            for field, value in header.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def write_tar(path: Any, files: Files, tar_format: int = tarfile.USTAR_FORMAT) -> str:
    """Writes a tar file of (name, content), and returns the path."""
    pathlib.Path(path).write_bytes(tar_of(files, tar_format))
    return str(path)
