"""Backends that need no worker: what they do is so little that the server process does it between two requests."""
