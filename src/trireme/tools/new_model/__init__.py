"""Writes the folder of a new model, which runs as it is, with its test."""
