"""The settings of a run: flags, presets, the bounds of each setting, and the contradictions between them."""
