"""The versions that a result depends on: of the source code, by git and by a digest, and of packages."""

import functools
import hashlib
import pathlib
import platform
import subprocess
import sys
from typing import Any, Dict, Optional

import numpy as np

from compat import tf
from inception_v3 import __version__

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# The packages that a run executes.
_PACKAGES = ('compat', 'console', 'inception_v3', 'preprocessing', 'data')
_GIT_TIMEOUT = 10  # Seconds.


@functools.lru_cache(maxsize=None)
def of_program() -> Dict[str, Any]:
    """The git `revision` of this program, whether files were `modified` since, and the digest of the `source`.

    `revision` and `modified` are None without git. The digest is the SHA-256 of the names and contents of the Python
    files that a run executes. Programs with the same digest are identical, even if their revisions differ.
    """
    revision = _git('rev-parse', 'HEAD')
    changes = _git('status', '--porcelain', '--', *_PACKAGES, 'requirements.lock') if revision else None
    return {'revision': revision, 'modified': None if changes is None else bool(changes), 'source': _digest()}


def _git(*arguments: str) -> Optional[str]:
    """The output of a git command; None without git, or if this folder is not a repository."""
    # The program may be installed inside the repository of another project.
    if not (_ROOT / '.git').exists():
        return None
    try:
        command = ['git', '-C', str(_ROOT), *arguments]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_GIT_TIMEOUT, check=True
        )
        return done.stdout.decode(errors='replace').strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _digest() -> str:
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob('*.py')):
            # In the wheel, these imports have a longer name (setup.py).
            text = path.read_bytes().replace(b'from inception_v3_tpu.', b'from ')
            content = hashlib.sha256(text).hexdigest()
            digest.update(f'{path.relative_to(_ROOT).as_posix()} {content}\n'.encode())
    return digest.hexdigest()


def current() -> Dict[str, Any]:
    """The versions of everything that a result depends on, and the command line."""
    return {
        'inception_v3': __version__,
        **of_program(),
        'tensorflow': tf.__version__,
        'numpy': np.__version__,
        'python': platform.python_version(),
        'platform': platform.platform(),
        'command': sys.argv,
    }
