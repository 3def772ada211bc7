"""Screen, pages, outputs and exit codes of all commands."""

from compat import settings  # noqa: F401  Must precede the import of TensorFlow.
