"""Recordings: calls of clients, kept for whoever asked for them, on request only."""
