"""Memory and time of RevNet training steps, with activations rebuilt and kept."""
