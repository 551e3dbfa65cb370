"""Flags, files and the sentences that state a wish, read into options."""
