"""Data sets in ImageNet's layout or as tar shards: converting, auditing, finding, reading and describing them."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
