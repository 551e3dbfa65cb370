"""Flags, files and the sentences that state a goal, read into options."""
