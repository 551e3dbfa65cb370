"""Sentences that messages of several rooms have in common."""
