"""Evaluates a checkpoint again, with a report on its mistakes."""
