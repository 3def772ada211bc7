"""The networks: one file each, reading like its paper's table, and the layers they share."""
