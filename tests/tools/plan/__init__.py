"""Tests of the plan of a run."""
