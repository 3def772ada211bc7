"""Command `inception-v3 predict`: classifies image files with a trained model."""
