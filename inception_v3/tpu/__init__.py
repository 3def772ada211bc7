"""Cloud TPU topologies, and a TPU emulated on the CPU."""
