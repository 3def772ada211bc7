"""The optional packages of this program, by the extras of `pyproject.toml` that install them."""


def command(extra: str) -> str:
    """The command that installs an extra, wherever this program is installed."""
    return f"pip install 'inception-v3-tpu[{extra}]'"
