"""Bytes to core types and back, without any input or output of its own."""
