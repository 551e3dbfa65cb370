"""The package that holds it."""
