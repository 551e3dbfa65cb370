"""The RPCs by topic."""
