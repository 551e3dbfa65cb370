"""Server-sent events: one event per message."""

from __future__ import annotations


def event_pieces(data: bytes) -> list[bytes]:
    """An event without a name that carries one line of data, which is not copied."""
    return [b"data: ", data, b"\n\n"]


def with_field(data: bytes, name: bytes, value: bytes) -> bytes:
    """The data of an event that has one more field, which clients that do not know it pass over."""
    return b"%b\n%b: %b" % (data, name, value)


def encode_event(data: bytes, name: bytes = b"") -> bytes:
    """An event that carries one line of data; those that browsers call `message` have no name."""
    return b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data
