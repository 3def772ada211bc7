"""Command `python -m inception_v3.evaluate_report`: evaluates a checkpoint, and reports its errors."""
