"""The interpreter and the packages that a model runs with."""
