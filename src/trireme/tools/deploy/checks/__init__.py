"""What will keep a model from being loaded, told beforehand."""
