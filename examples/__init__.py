"""Programs of one page, to read."""
