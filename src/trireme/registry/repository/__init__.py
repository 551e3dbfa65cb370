"""The folders that models are in, and what changed there."""
