"""Sweeps: `plan` reads a study and checks its trials, `run` runs and reports them; begin there."""
