"""Memory of a run on this machine: how much there is, and how much the run's settings need."""
