"""Commands that make checkpoints of checkpoints."""
