"""Converting CIFAR-10, as it is published, to tar shards."""
