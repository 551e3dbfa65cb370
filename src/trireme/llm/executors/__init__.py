"""What computes a step: numpy, PyTorch on a processor or a GPU."""
