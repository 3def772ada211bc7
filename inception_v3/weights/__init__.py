"""Weights of other runs and programs: reads them, begins a run from them, and freezes them."""
