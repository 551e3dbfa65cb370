"""The HTTP/REST listener."""
