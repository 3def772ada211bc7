"""Command `python -m inception_v3.predict`: classifies image files with a trained model."""
