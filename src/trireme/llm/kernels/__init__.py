"""The kernels for NVIDIA GPUs, in the Triton language."""
