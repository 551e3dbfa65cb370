"""What a model sees as `triton_python_backend_utils`."""
