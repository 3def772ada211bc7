"""Benchmarks of the input pipeline and of training steps.

Start with the commands `input`, `training` and `balance`; `peers` compares with other libraries. Only `studies` imports
this package.
"""
