"""What `trireme serve` tells the person who started it."""
