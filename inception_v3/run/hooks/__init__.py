"""Session hooks of training and evaluation."""
