"""TPU cores emulated on virtual devices of the CPU."""
