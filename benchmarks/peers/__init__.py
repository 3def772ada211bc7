"""Comparison of the input pipeline and of the training step with those of other libraries.

A script for each library measures it in an environment that has it, where this program's own packages are missing.
`requirements.txt` states the versions.
"""
