"""The storage phase of training with a seed, and of data sets with bad records."""
