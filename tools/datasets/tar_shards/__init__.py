"""Converting record files to tar shards and back."""
