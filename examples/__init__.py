"""One-page programs, to be read."""
