"""Reproducibility studies: sweeps over the program's flags, and repetitions of published experiments."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
