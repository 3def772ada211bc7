"""Reproducibility studies: sweeps over the program's flags, and repetitions of published experiments."""
