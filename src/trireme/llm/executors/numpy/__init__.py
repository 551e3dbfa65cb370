"""Computes steps with numpy in float32: the reference for other devices, and quick enough for small models."""
