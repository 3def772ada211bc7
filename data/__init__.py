"""Data sets as record files in ImageNet's layout: writing, finding, reading, describing."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
