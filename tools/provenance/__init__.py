"""Command `inception-v3 provenance`: shows, verifies and compares the origin of runs."""
