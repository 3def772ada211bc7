"""Sweeps: all trials of a study on this machine or on a Ray cluster."""
