"""Throughput of the input pipeline from single files and from shards, on local and remote storage."""
