"""Converting ImageNet-2012, as it is distributed, to record files."""
