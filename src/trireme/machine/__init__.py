"""What this machine has: its memory, and the arithmetic of its processor."""
