"""Server-sent events: one event per message."""

from __future__ import annotations


def encode_event(data: bytes, name: bytes = b"") -> bytes:
    """An event that carries one line of data; those that browsers call `message` have no name."""
    return b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data
