"""The backend for the folders that MLflow writes for a model."""
