"""Command `inception-v3 evaluate`: evaluates a checkpoint, and reports its errors."""
