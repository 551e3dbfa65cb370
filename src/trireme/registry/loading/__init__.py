"""How versions of a model come, change places and go."""
