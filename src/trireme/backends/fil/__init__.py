"""The backend for forests of trees under Triton's name for it, with its files, parameters and tensors."""
