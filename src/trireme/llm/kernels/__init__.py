"""The kernels for NVIDIA GPUs, in the Triton language; of products with four bits in CUDA's C++."""
