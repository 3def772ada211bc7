"""Writing of tar files."""

import io
import tarfile
from typing import Any, Sequence, Tuple

Files = Sequence[Tuple[str, bytes]]


def write_tar(path: Any, files: Files, tar_format: int = tarfile.USTAR_FORMAT, **header: Any) -> str:
    """Writes a tar file of (name, content); `header` sets fields of each member. Returns the path."""
    with tarfile.open(str(path), 'w', format=tar_format) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for field, value in header.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(content))
    return str(path)
