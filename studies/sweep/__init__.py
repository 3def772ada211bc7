"""Sweeps: all trials of a study, on this machine, on a Ray cluster or as Kubernetes jobs."""
