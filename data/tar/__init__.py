"""Checks and reads tar shards in the layout of the webdataset package."""
