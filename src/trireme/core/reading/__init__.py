"""Texts that come from elsewhere, as values."""
