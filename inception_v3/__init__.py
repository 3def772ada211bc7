"""Inception v3 for Cloud TPU: the training, evaluation and export program."""

__version__ = '2.0.0'
