"""JSON read and written piece by piece."""
