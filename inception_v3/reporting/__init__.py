"""Messages of a run: its notes, its summary, and the causes of its failures."""
