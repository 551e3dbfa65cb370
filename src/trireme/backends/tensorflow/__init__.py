"""SavedModels, run by TensorFlow in worker processes."""
