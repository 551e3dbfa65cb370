"""Requests as bytes, and the protocols that carry them, free of sockets."""
