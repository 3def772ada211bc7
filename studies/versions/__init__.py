"""Comparison of the two versions of TensorFlow that this program runs on."""
