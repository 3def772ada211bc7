"""Classifies image files with a trained model."""
