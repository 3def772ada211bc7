"""Command `python -m inception_v3.features`: the pooled features of images at any layer of a network."""
