"""What is in the file system, as far as models lie there."""
