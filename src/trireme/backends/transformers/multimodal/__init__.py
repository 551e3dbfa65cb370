"""Tasks that take more than one kind of input."""
