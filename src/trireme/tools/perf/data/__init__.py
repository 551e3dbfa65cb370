"""The tensors that requests carry."""
