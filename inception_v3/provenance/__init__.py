"""The origin of a run: its configuration, data, versions and commands."""
