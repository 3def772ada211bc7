"""Command `inception-v3 features`: the pooled features of images at any layer of a network."""
