"""Folders that `trireme build` writes: tensors under canonical names, quantized or not, and a file about them."""
