"""TorchScript files and exported programs, run by PyTorch in worker processes."""
