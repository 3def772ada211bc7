"""Other names of a file or folder, to show that an output does not replace an input under another name."""

import os
import pathlib
from typing import List


def spellings(path: str, folder: pathlib.Path) -> List[str]:
    """Other names of a path: by two symbolic links, which are made in `folder`, as a relative path, and by detours."""
    parent, name = os.path.split(path)
    link, link_to_parent = folder / f'link-{name}', folder / 'link-to-parent'
    link.symlink_to(path)
    link_to_parent.symlink_to(parent)
    detour = os.path.join(parent, '.', '..', os.path.basename(parent), '', name)
    return [str(link), str(link_to_parent / name), os.path.relpath(path), detour]
