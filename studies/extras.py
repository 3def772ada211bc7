"""Checks that the packages of an extra are installed before a command needs them."""

import importlib.util

from console import extras
from console.errors import CommandError

# The modules that each extra of setup.py installs.
_MODULES = {
    'studies': ('jinja2', 'matplotlib', 'PIL', 'plotly', 'rich', 'scipy', 'yaml'),
    'ray': ('ray',),
}


class MissingPackageError(CommandError):
    """An optional package is not installed."""


def require(extra: str) -> None:
    """Checks that all packages of an extra are installed.

    Raises:
      MissingPackageError: a package is missing; the message has the command that installs it.
    """
    missing = [name for name in _MODULES[extra] if not importlib.util.find_spec(name)]
    if missing:
        raise MissingPackageError(f'{", ".join(missing)}: not installed: {extras.command(extra)}')
