"""Reproducibility studies: sweeps over the program's flags, and published experiments repeated."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
