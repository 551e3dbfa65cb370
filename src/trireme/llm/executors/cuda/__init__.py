"""Steps on NVIDIA GPUs: kernels in the Triton language, recorded once per batch size and replayed."""
