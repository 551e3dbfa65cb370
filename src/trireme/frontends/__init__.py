"""Bytes in, bytes out: the listeners."""
