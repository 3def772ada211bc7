"""Makes expensive test data once per session, for all processes of pytest-xdist."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any, Callable


def once(tmp_path_factory: Any, name: str, make: Callable[[str], Any]) -> str:
    """Makes a folder once per session, and returns its path: the first process makes it, the others wait for it.

    Tests only read the folder, or copy it. If `make` fails, the next process tries again with an empty folder.
    """
    root = Path(tmp_path_factory.getbasetemp())
    if 'PYTEST_XDIST_WORKER' in os.environ:
        root = root.parent  # Each worker has a folder of its own in the session's folder.
    folder, made = root / f'shared-{name}', root / f'shared-{name}.made'
    with open(str(root / f'shared-{name}.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(str(folder), ignore_errors=True)
            folder.mkdir()
            make(str(folder))
            made.touch()
    return str(folder)
