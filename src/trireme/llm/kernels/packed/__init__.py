"""Weights in fewer bits than the numbers that are computed with: how they lie in memory, and products with them."""
