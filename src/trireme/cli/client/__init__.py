"""The commands that ask a running server."""
