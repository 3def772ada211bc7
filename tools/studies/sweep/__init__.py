"""Sweeps: `run` plans, runs and reports the trials of a study; start there."""
