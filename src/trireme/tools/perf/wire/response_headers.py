"""What the header blocks of an HTTP/2 server's answers say."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from trireme.protocol.http2.headers import Header

MAX_HEADER_LIST_BYTES = 1 << 16
"""Of a server's answer."""


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """What matters of a block: headers and trailers alike."""

    http_status: int | None
    grpc_status: int | None
    message: str
    encoding: str


def read_response_headers(decoded: list[Header]) -> ResponseHeaders:
    """Of a block's fields; of several with one name the last counts."""
    fields = dict(decoded)
    return ResponseHeaders(
        _number(fields.get(b":status")),
        _number(fields.get(b"grpc-status")),
        unquote_to_bytes(fields.get(b"grpc-message", b"")).decode("utf-8", "replace"),
        fields.get(b"grpc-encoding", b"").decode("ascii", "replace"),
    )


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
