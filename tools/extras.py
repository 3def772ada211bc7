"""The optional packages of this program, by the extras of `pyproject.toml` that install them."""

import importlib.util

from compat.errors import CommandError


def command(extra: str) -> str:
    """The command that installs an extra, wherever this program is installed."""
    return f"pip install 'inception-v3-tpu[{extra}]'"


def require(extra: str, *modules: str) -> None:
    """Raises CommandError, with the command that installs an extra, if any of its modules is missing."""
    missing = [name for name in modules if not importlib.util.find_spec(name)]
    if missing:
        raise CommandError(f'{", ".join(missing)}: not installed: {command(extra)}')
