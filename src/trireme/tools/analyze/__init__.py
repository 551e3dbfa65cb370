"""Searches for the configuration that serves a model best, by measuring it on a running server."""
