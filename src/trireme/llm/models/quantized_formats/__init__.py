"""Quantized checkpoints as others publish them: their tensors in the layout of `models/quantized.py`."""
