"""Preprocessing of images, as TensorFlow operations on one image at a time."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
