"""`trireme package`: a repository of models as one file."""
