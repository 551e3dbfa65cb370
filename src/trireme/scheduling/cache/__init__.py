"""Answers that are remembered, here or in a Redis."""
