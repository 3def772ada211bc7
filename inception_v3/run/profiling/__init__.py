"""A profile of training steps: a trace of host and device, its analysis, and a page."""
