"""Comparison of the input pipeline with those of other libraries, each in an environment of its own.

Each library has a module, which lists the packages of its environment at the top, and prepares the images of a
`meter.Task`. This program's own packages are not in these environments.
"""
