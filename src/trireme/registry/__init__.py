"""Which models exist, which versions, in which state."""
