"""Steps on NVIDIA GPUs: launches of our kernels, recorded once per batch size and replayed."""
