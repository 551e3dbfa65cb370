"""The end of the process."""
