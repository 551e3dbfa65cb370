"""What conversations are made of."""
