"""The optional packages of this program, by the extras of `pyproject.toml` that install them."""

import contextlib
from typing import Iterator

from console.errors import CommandError


def command(extra: str) -> str:
    """The command that installs an extra, wherever this program is installed."""
    return f"pip install 'inception-v3-tpu[{extra}]'"


@contextlib.contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Names the extra of a package that the body imports and that is not installed."""
    try:
        yield
    except ImportError as error:
        raise CommandError(f'{what} needs {error.name}, which is not installed: {command(extra)}.')
