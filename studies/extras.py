"""Checks that the packages of an extra are installed before a command needs them."""

import importlib.util

from console import extras
from console.errors import CommandError

# The modules that each extra of pyproject.toml installs.
_MODULES = {
    'studies': ('jinja2', 'matplotlib', 'PIL', 'plotly', 'rich', 'scipy', 'yaml'),
    'ray': ('ray',),
}


def require(extra: str) -> None:
    """Raises CommandError, with the command that installs them, unless all packages of an extra are installed."""
    missing = [name for name in _MODULES[extra] if not importlib.util.find_spec(name)]
    if missing:
        raise CommandError(f'{", ".join(missing)}: not installed: {extras.command(extra)}')
