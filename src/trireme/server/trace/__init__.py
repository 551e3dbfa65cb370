"""Traces of requests: which are made, by which settings, and what a client gets to see of its own."""
