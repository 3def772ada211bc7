"""Data sets as record files in ImageNet's layout: writing, finding, reading, describing."""
