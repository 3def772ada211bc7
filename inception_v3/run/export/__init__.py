"""Exports a run: its SavedModel, the card of the model, and the origin of both."""
