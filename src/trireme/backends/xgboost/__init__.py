"""The backend for the files that XGBoost's `save_model` writes."""
