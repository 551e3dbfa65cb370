"""Steps through the model code of transformers, for architectures that the catalog does not have."""
