"""Command `inception-v3 preflight`: checks without a TPU whether a run can start on one."""
