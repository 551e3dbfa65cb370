"""The worker's half of the python backend: one model instance and its loop."""
