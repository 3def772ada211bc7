"""The networks, one file per paper, and the layers that they share."""
