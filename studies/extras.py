"""Packages that a program of this folder needs beside those of the network: told at its start, not hours later."""

import importlib.util
import sys

# By the name of the extra in setup.py: what is imported of it.
_IMPORTED = {
    'studies': ('jinja2', 'matplotlib', 'PIL', 'plotly', 'rich', 'scipy', 'yaml'),
    'ray': ('ray',),
}


def require(extra: str) -> None:
    """Ends the program, with exit code 2, if a package of an extra is not installed."""
    missing = [name for name in _IMPORTED[extra] if not importlib.util.find_spec(name)]
    if missing:
        print(f"error: {', '.join(missing)}: not installed: pip install '.[{extra}]'", file=sys.stderr)
        sys.exit(2)
