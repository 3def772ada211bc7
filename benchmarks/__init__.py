"""Benchmarks of the input pipeline, and of its consequences for a run on a TPU."""

from console import tensorflow_settings  # noqa: F401  Before any module of the package loads TensorFlow.
