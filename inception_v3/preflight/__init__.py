"""Command `python -m inception_v3.preflight`: checks without a TPU whether a run can start on one."""
