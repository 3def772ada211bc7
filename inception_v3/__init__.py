"""Inception v3 for Cloud TPU: the training, evaluation and export program."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.

__version__ = '1.0.0'
