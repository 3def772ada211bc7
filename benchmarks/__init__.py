"""Benchmarks of the input pipeline, and of its consequences for a run on a TPU."""
