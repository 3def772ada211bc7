"""A GPU in place of a TPU: the device and layout of a run, and loss scaling for float16."""
