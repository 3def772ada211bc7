"""Checks that the packages of an extra are installed before a command starts."""

import importlib.util
import sys

from console.errors import FIX

# The modules that each extra of setup.py installs.
_MODULES = {
    'studies': ('jinja2', 'matplotlib', 'PIL', 'plotly', 'rich', 'scipy', 'yaml'),
    'ray': ('ray',),
}


def require(extra: str) -> None:
    """Ends the program with exit code 2 if a package of an extra is missing."""
    missing = [name for name in _MODULES[extra] if not importlib.util.find_spec(name)]
    if missing:
        print(f"error: {', '.join(missing)}: not installed: pip install '.[{extra}]'", file=sys.stderr)
        sys.exit(FIX)
