"""Sessions that live as long as a command."""
