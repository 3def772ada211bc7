"""A TPU that is not there: its answers, and its work on virtual devices of this machine's CPU."""
