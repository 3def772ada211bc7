"""Finds, reads, checks and describes data sets, in ImageNet's layout or as tar shards.

A function that opens files raises DataError for missing, damaged or unexpected content, and RemoteError if access is
denied or the store cannot be reached.
"""
