"""Grammars that an answer has to follow: JSON schemas, regular expressions, choices, and others."""
