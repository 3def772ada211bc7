"""Reproducibility studies: published experiments made again with the program, beside their published figures."""
