"""What this machine has: its memory, the arithmetic of its processor, and its processes."""
