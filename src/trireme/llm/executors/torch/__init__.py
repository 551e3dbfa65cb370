"""Steps in plain PyTorch: on processors, and on GPUs for models that the kernels do not cover."""
