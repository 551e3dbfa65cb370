"""Accelerators: which there are, who owns them, what a worker's environment needs, and how busy they are."""
