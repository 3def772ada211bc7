"""Weights of other runs and programs: reading them, beginning a run from them, and freezing them."""
