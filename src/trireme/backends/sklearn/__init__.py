"""The backend for what scikit-learn, and all that looks like it, saved with joblib or pickle."""
