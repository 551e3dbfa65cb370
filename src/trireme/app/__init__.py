"""Builds the server, starts it, stops it: the one room that knows all the others."""
