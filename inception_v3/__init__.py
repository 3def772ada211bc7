"""Inception v3 for Cloud TPU: the training, evaluation and export program."""

from data import before_tensorflow  # noqa: F401  for those who use parts of the program: before TensorFlow is loaded

__version__ = '1.0.0'
