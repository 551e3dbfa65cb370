"""Configurations as text: config.pbtxt and JSON."""
