"""What each HTTP path answers."""
