"""Which source this program is: its revision in git, if there is one, and a digest of its files."""

import functools
import hashlib
import pathlib
import platform
import subprocess
import sys
from typing import Any, Dict, Optional

import numpy as np
import tensorflow as tf

import inception_v3

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a run executes.
_PACKAGES = ('console', 'inception_v3', 'preprocessing', 'data')
_SECONDS = 10


@functools.lru_cache(maxsize=None)
def version() -> Dict[str, Any]:
    """The program's `revision` in git, whether it was `modified` since, and the digest of its `source`.

    The first two are None without git. The digest is the SHA-256 of the names and contents of the Python files that a
    run executes: two programs of the same digest are the same, whatever git says.
    """
    revision = _git('rev-parse', 'HEAD')
    changes = _git('status', '--porcelain', '--', *_PACKAGES, 'requirements.lock') if revision else None
    return {'revision': revision, 'modified': None if changes is None else bool(changes), 'source': _digest()}


def _git(*arguments: str) -> Optional[str]:
    """What git says; None if it is not there, or knows nothing of this folder."""
    # Another project's repository may be around the one that this program is installed in.
    if not (_ROOT / '.git').exists():
        return None
    try:
        command = ['git', '-C', str(_ROOT), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SECONDS, check=True)
        return done.stdout.decode(errors='replace').strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _digest() -> str:
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob('*.py')):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f'{path.relative_to(_ROOT).as_posix()} {content}\n'.encode())
    return digest.hexdigest()


def versions() -> Dict[str, Any]:
    """The versions of what a result depends on."""
    return {
        'inception_v3': inception_v3.__version__,
        **version(),
        'tensorflow': tf.__version__,
        'numpy': np.__version__,
        'python': platform.python_version(),
        'platform': platform.platform(),
        'command': sys.argv,
    }
