"""Beam search: the most likely texts of a prompt, followed side by side on shared blocks of the cache."""
