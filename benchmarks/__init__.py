"""Benchmarks of the input pipeline, and what they mean for a run on a TPU."""
