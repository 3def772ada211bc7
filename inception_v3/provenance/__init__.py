"""Command `python -m inception_v3.provenance`: shows, verifies and compares the origin of runs."""
