"""Answers of HTTP/1.1 servers: heads, read once per distinct head, and bodies in chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass

_MAX_LENGTH_DIGITS = 20
_MAX_CACHED_HEADS = 1024
MAX_HEAD_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
_MAX_EVENT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What a head says about its body."""

    status: int
    length: int | None
    """None: the body ends with its last chunk, or with the connection."""
    is_chunked: bool
    is_last: bool
    """The server closes the connection behind it."""
    json_length: int | None
    """Where the JSON part of a body with binary tensors ends."""


class HeadReader:
    """Reads heads; the answers of one model to equal requests have equal heads, as a rule."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, ResponseHead] = {}

    def read(self, head: bytes) -> ResponseHead:
        """The head without the empty line behind it; raises ValueError where it is none."""
        known = self._known.get(head)
        if known is None:
            known = _parse(head)
            if len(self._known) >= _MAX_CACHED_HEADS:
                self._known.clear()
            self._known[head] = known
        return known


def _parse(head: bytes) -> ResponseHead:
    first, *lines = head.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("the server does not speak HTTP/1.1")
    fields = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    status = int(rest[:3])
    is_chunked = b"chunked" in fields.get(b"transfer-encoding", b"").lower()
    length = fields.get(b"content-length")
    json_length = fields.get(b"inference-header-content-length")
    connection = fields.get(b"connection", b"").lower()
    is_last = b"close" in connection or (version == b"HTTP/1.0" and b"keep-alive" not in connection)
    if length is None and not is_chunked and (status in (204, 304) or status < 200):
        length = b"0"
    size = None if length is None or is_chunked else _number(length)
    json_size = None if json_length is None else _number(json_length)
    if size is not None and json_size is not None and json_size > size:
        raise ValueError(f"its head announces {json_size} bytes of JSON in a body of {size}")
    return ResponseHead(status, size, is_chunked, is_last, json_size)


def _number(value: bytes) -> int:
    fault = length_fault(value.decode("latin-1"))
    if fault:
        raise ValueError(fault)
    return int(value)


def length_fault(value: str | None) -> str:
    """What is wrong with a length that a head announces; empty where nothing is. Others read one that is below zero as
    none at all, and wait for an end that does not come."""
    if value is None or (value.isascii() and value.isdecimal() and len(value) < _MAX_LENGTH_DIGITS):
        return ""
    return f"its head announces a length of {value[:_MAX_LENGTH_DIGITS]!r}, which is no number of bytes"


class ChunkedBody:
    """Takes a chunked body apart as it comes."""

    __slots__ = ("_left", "_pending", "is_done")

    def __init__(self) -> None:
        self._pending = b""
        self._left = 0
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """The content of what came; raises ValueError where it is not chunked."""
        data, self._pending = self._pending + data, b""
        parts = []
        while data and not self.is_done:
            if self._left > 2:
                part = data[: self._left - 2]
                parts.append(part)
                data = data[len(part) :]
                self._left -= len(part)
                continue
            if self._left:
                dropped = min(self._left, len(data))
                data, self._left = data[dropped:], self._left - dropped
                continue
            line, end, rest = data.partition(b"\r\n")
            if not end:
                if len(data) > _MAX_LINE_BYTES:
                    raise ValueError("the line with the length of a chunk has no end")
                self._pending = data
                break
            size = int(line.partition(b";")[0], 16)
            if size < 0:
                raise ValueError(f"a chunk has {size} bytes")
            if size:
                data, self._left = rest, size + 2
            elif rest.startswith(b"\r\n"):
                self.is_done = True
            else:
                self._pending = data
                break
        return b"".join(parts)


class EventSplitter:
    """Server-sent events out of a text that comes in pieces."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that is complete; raises ValueError for one without an end."""
        text = (self._pending + data).replace(b"\r\n", b"\n")
        *blocks, self._pending = text.split(b"\n\n")
        if len(self._pending) > _MAX_EVENT_BYTES:
            raise ValueError(f"an event of the stream has more than {_MAX_EVENT_BYTES} bytes")
        events = []
        for block in blocks:
            lines = [line[5:].lstrip(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
            if lines:
                events.append(b"\n".join(lines))
        return events


def error_text(status: int, body: bytes) -> str:
    """What an answer that is no success says, be it an event of a stream that failed at its beginning."""
    events = EventSplitter().feed(body + b"\n\n")
    try:
        document = json.loads(events[0] if events else body)
        found = document["error"] if "error" in document else document["message"]
        return str(found.get("message", found) if isinstance(found, dict) else found)
    except (ValueError, KeyError, TypeError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        return text or f"the server answered with status {status}"
