"""Exports of trained networks to other formats, with a check of each in its own runtime."""
