"""The backend for the files that CatBoost's `save_model` writes."""
