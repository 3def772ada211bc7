"""Checks, without a TPU, whether a run may start on one."""
