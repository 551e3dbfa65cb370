"""Workers that the server process leases to front-end processes, which queue and batch for them."""
