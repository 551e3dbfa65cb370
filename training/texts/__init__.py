"""Where texts come from and how they are read."""
