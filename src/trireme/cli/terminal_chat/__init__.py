"""The parts of `trireme chat`."""
