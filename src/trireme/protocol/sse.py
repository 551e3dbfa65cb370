"""Server-sent events: one event per message."""

from __future__ import annotations


def encode_event(data: bytes) -> bytes:
    """An event that carries one line of data."""
    return b"data: %b\n\n" % data
