"""Finds, reads, checks and describes data sets, in ImageNet's layout or as tar shards.

A function that opens files raises DataError for what is missing, damaged or not as expected, and RemoteError if access
is denied or the store cannot be reached.
"""
