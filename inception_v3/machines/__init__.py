"""Several machines that train together: their addresses, the messages between them, and sums across them."""
