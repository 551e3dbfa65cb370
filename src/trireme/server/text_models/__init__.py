"""Models that write texts or make vectors of them."""
