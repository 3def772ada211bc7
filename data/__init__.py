"""Converts, audits, finds, reads and describes data sets, in ImageNet's layout or as tar shards."""
