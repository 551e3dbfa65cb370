"""The backend for the files that LightGBM's `save_model` writes."""
