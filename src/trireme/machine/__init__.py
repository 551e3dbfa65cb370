"""What this machine has: its memory, the arithmetic of its processor, its processes, and its files."""
