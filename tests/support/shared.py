"""Makes expensive test data once per session, for all processes of pytest-xdist."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any, Callable


def once(tmp_path_factory: Any, name: str, make: Callable[[str], Any]) -> str:
    """Makes a folder once per session: the first process makes it, and the others wait for it.

    Tests only read the folder, or copy it.

    Args:
      tmp_path_factory: the fixture of pytest.
      name: the folder's name, unique in the session.
      make: fills the folder at a path, where it stays: a run records the paths of its folders. If it fails, the
        process that wants the folder next tries again with an empty one.

    Returns:
      The folder's path.
    """
    root = Path(tmp_path_factory.getbasetemp())
    if 'PYTEST_XDIST_WORKER' in os.environ:
        root = root.parent  # Each worker has a folder of its own in that of the session.
    folder, made = root / f'shared-{name}', root / f'shared-{name}.made'
    with open(str(root / f'shared-{name}.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(str(folder), ignore_errors=True)
            folder.mkdir()
            make(str(folder))
            made.touch()
    return str(folder)
