"""Batch normalization across replicas: the published experiment repeated on 8 emulated cores."""
