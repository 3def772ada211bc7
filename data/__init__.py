"""Converts, audits, finds, reads and describes data sets, in ImageNet's layout or as tar shards."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
