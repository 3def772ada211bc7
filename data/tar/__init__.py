"""Tar shards in the layout of the webdataset package: finding, checking and reading them."""
