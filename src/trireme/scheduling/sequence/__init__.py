"""Requests of one correlation id, one after another on one instance."""
