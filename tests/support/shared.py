"""Makes expensive test data once per session, for all processes of pytest-xdist."""

import fcntl
import os
from pathlib import Path
from typing import Any, Callable


def once(tmp_path_factory: Any, name: str, make: Callable[[str], None]) -> str:
    """Makes a folder once per session: the first process makes it, and the others wait for it.

    Tests only read the folder, or copy it.

    Args:
      tmp_path_factory: the fixture of pytest.
      name: the folder's name, unique in the session.
      make: fills the folder at a path. If it fails, the next process tries again, in a new folder.

    Returns:
      The folder's path.
    """
    root = Path(tmp_path_factory.getbasetemp())
    if 'PYTEST_XDIST_WORKER' in os.environ:
        root = root.parent  # Each worker has a folder of its own in that of the session.
    folder = root / f'shared-{name}'
    with open(root / f'{folder.name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = tmp_path_factory.mktemp(f'{folder.name}-unfinished')
            make(str(unfinished))
            unfinished.rename(folder)
    return str(folder)
