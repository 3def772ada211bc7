"""Reproducibility studies: published experiments made again with the program, beside their published figures."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
