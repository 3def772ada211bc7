"""Several machines that train together: their addresses, what they tell each other, and sums across them."""
