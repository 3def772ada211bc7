"""Screen, messages and errors of all commands, and the settings that Python and TensorFlow need before the imports.

The packages load this one by its path: a user's `console.py` may come first on `sys.path`.
"""

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGES = ('benchmarks', 'console', 'data', 'inception_v3', 'preprocessing', 'studies')


def _hides_a_package(folder: str) -> bool:
    paths = [os.path.join(folder, name) for name in _PACKAGES]
    return any(os.path.isfile(f'{path}.py') or os.path.isdir(path) for path in paths)


def _put_own_packages_first() -> None:
    """Makes Python find this program's packages, whatever files the user's folders have.

    `python -m` puts the working directory first; unless the program is there, it is moved to the end. `PYTHONPATH` may
    name further folders, such as one with a `data.py`.
    """
    if sys.argv[:1] == ['-m'] and sys.path[0] != _ROOT:
        sys.path.append(sys.path.pop(0))
    own = sys.path.index(_ROOT) if _ROOT in sys.path else len(sys.path)
    for place, folder in enumerate(sys.path[:own]):
        if _hides_a_package(folder):
            sys.path.insert(place, _ROOT)
            return


_put_own_packages_first()

from console import tensorflow_settings  # noqa: E402, F401  Must precede the import of TensorFlow.
