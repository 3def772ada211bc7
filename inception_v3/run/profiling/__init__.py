"""A profile of training steps: its numbers, the phases of a trace of host and device, and a page."""
