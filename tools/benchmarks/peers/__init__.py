"""Comparison of the input pipeline with those of other libraries, each in an environment of its own.

A module per library states at its top the packages that its environment has, and prepares images by `meter.Task`; this
program's own packages are missing there.
"""
