"""Comparison of the input pipeline with those of other libraries."""
