"""Preprocessing of images, as TensorFlow operations on one image at a time."""
