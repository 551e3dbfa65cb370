"""Where a model is, which files it has, and how they are fetched."""
